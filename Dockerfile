# The packages of the project, for the servers and the worker of compose.yaml. The project itself is mounted, not copied:
# DVC needs its git repository, and data, checkpoints and models outlive the container.
FROM python:3.12-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && git config --system --add safe.directory '*' \
    && useradd --uid 1000 --create-home anamnesis \
    && install --directory --owner anamnesis --group anamnesis /artifacts /project

# Without a GPU: --build-arg PIP_EXTRA_INDEX_URL=<PyTorch's CPU wheel index>
ARG PIP_EXTRA_INDEX_URL
COPY pyproject.toml constraints.txt /tmp/packages/
RUN cd /tmp/packages \
    && python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *p['optional-dependencies']['server'], sep='\n')" > requirements.txt \
    && pip install --no-cache-dir --constraint constraints.txt --requirement requirements.txt \
    && rm -r /tmp/packages

ENV DO_NOT_TRACK=true \
    DVC_NO_ANALYTICS=1 \
    MLFLOW_DISABLE_TELEMETRY=true \
    MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    PYTHONUNBUFFERED=1
USER anamnesis
WORKDIR /project

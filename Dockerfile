# The image of docker-compose.yml: sweeper with its extras, and the digits example.
FROM python:3.12.11-slim-bookworm

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# An index with CPU builds of torch makes the image some gigabytes smaller: --build-arg TORCH_INDEX=URL
ARG TORCH_INDEX=

WORKDIR /app
COPY constraints.txt ./
RUN pip install --constraint constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY sweeper sweeper
COPY hydra_plugins hydra_plugins
RUN pip install --constraint constraints.txt ".[torch,s3,dashboard]" scikit-learn
COPY configs configs
COPY examples examples
COPY scripts/make_bucket.py scripts/

RUN useradd --create-home --uid 1000 sweeper && mkdir /runs && chown sweeper /runs
USER sweeper
ENV SWEEPER_HOME=/home/sweeper/.sweeper
CMD ["sweeper", "--help"]

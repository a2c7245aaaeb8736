# The images of Voxint. Targets: app, whisper, pyannote, titanet.
#   docker compose -f compose.yaml -f compose.gpu.yaml build
# The base only has to hold Python 3.11 to 3.13 with venv, and CA certificates.
ARG BASE_IMAGE=python:3.12.11-slim-bookworm

FROM ${BASE_IMAGE} AS base
ENV LANG=C.UTF-8 \
    PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/app/src \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp
# The same number in every image: they share volumes. The folders lend their owner to volumes that are new.
RUN groupadd --gid 10001 voxint \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin voxint \
    && mkdir -p /app /media/voxint /models /run/voxint-turn \
    && chown voxint:voxint /media/voxint /models /run/voxint-turn
WORKDIR /app

# --- the application: console, workers, beat, migrations, and the phase task ---
FROM base AS app-packages
COPY requirements/app.txt requirements/app.txt
RUN python3 -m venv /opt/venv \
    && pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/app.txt \
    && pip uninstall -q -y pip

FROM base AS app
COPY --from=app-packages /opt/venv /opt/venv
COPY migrations migrations
COPY src/voxint src/voxint
RUN printf '#!/opt/venv/bin/python3\nimport sys\n\nfrom voxint.cli.main import main\n\nsys.exit(main())\n' \
        > /usr/local/bin/voxint \
    && chmod 755 /usr/local/bin/voxint \
    && python3 -m compileall -q src/voxint
USER voxint
CMD ["voxint", "--help"]

# --- the model servers; MODEL_REQUIREMENTS names the packages of a tier ---
FROM base AS model-packages
ARG MODEL_REQUIREMENTS=models-cpu
COPY requirements requirements
RUN python3 -m venv /opt/venv \
    && pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/${MODEL_REQUIREMENTS}.txt \
    && if [ "${MODEL_REQUIREMENTS}" = models-cpu ]; then \
        sed -n '/^resemblyzer==/,/^[^ ]/p' requirements/no-deps.txt | sed '1b;/^[^ ]/d' > requirements/voices.txt \
        && pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps -r requirements/voices.txt; \
    fi \
    && ln -s "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia" /opt/venv/nvidia \
    && pip uninstall -q -y pip

FROM base AS model
# CUDA's libraries come as packages: the loader finds them here. On the CPU tier there are none.
ENV LD_LIBRARY_PATH=/opt/venv/nvidia/cublas/lib:/opt/venv/nvidia/cudnn/lib
COPY --from=model-packages /opt/venv /opt/venv
COPY src/voxint_models src/voxint_models
RUN python3 -m compileall -q src/voxint_models
USER voxint
EXPOSE 8000
# Where GPU sharing is on, nothing loads a model out of turn: see voxint_models/turn.py.
ENTRYPOINT ["python3", "-m", "voxint_models.turn"]
HEALTHCHECK --interval=5s --timeout=4s --start-period=300s --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]

FROM model AS whisper
CMD ["python3", "-m", "voxint_models.whisper", "--host", "0.0.0.0", "--port", "8000"]

FROM model AS pyannote
CMD ["python3", "-m", "voxint_models.pyannote", "--host", "0.0.0.0", "--port", "8000"]

FROM model AS titanet
CMD ["python3", "-m", "voxint_models.titanet", "--host", "0.0.0.0", "--port", "8000"]

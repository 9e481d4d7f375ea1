FROM python:3.12-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/meshwright
WORKDIR /build
COPY requirements.lock ./
RUN /opt/meshwright/bin/pip install --requirement requirements.lock
COPY LICENSE README.md pyproject.toml ./
COPY cluster_models cluster_models
COPY solver solver
COPY app app
COPY migrations migrations
RUN /opt/meshwright/bin/pip install --no-deps .

FROM python:3.12-slim
LABEL org.opencontainers.image.title="Meshwright" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 meshwright \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin meshwright \
 && install --directory --owner=10001 --group=10001 /data
COPY --from=build /opt/meshwright /opt/meshwright
COPY examples /usr/share/meshwright/examples
# Compiled solver code is kept in the data folder: the rest of the file system may be read-only.
ENV PATH=/opt/meshwright/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/data/compiled \
    MESHWRIGHT_DATA_DIR=/data \
    MESHWRIGHT_HOST=0.0.0.0 \
    MESHWRIGHT_PORT=8080 \
    MESHWRIGHT_LOG_JSON=true
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['MESHWRIGHT_PORT'] + '/healthz', timeout=2)"]
ENTRYPOINT ["meshwright"]
CMD ["serve"]

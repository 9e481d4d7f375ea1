FROM python:3.12-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/meshwright
WORKDIR /build
COPY requirements.lock ./
RUN /opt/meshwright/bin/pip install --requirement requirements.lock
COPY LICENSE README.md pyproject.toml ./
COPY cluster_models cluster_models
COPY readers readers
COPY solver solver
COPY app app
COPY migrations migrations
COPY examples examples
RUN /opt/meshwright/bin/pip install --no-deps .
# Compile the solver's inner loops for containers to start from.
RUN cd examples \
 && NUMBA_CACHE_DIR=/compiled PYTHONDONTWRITEBYTECODE=1 /opt/meshwright/bin/meshwright plan \
      --cluster clusters/two-nodes.yaml --model llama-3-8b --workload workloads/llama-3-8b-small.yaml \
 && NUMBA_CACHE_DIR=/compiled PYTHONDONTWRITEBYTECODE=1 /opt/meshwright/bin/meshwright experts place \
      --loads routing/prefill.json routing/decode.json --ranks 16 --nodes 2 --slots 48 --router 4 --link-speed 50 \
      --format sglang --output /tmp/maps \
 && NUMBA_CACHE_DIR=/compiled PYTHONDONTWRITEBYTECODE=1 /opt/meshwright/bin/meshwright experts rebalance \
      --running /tmp/maps/expert_location.json --loads routing/decode.json --ranks 16 --nodes 2 --expert-bytes 44e6 \
      --steps 10000 \
 && echo '[[90, 40, 21, 20, 12, 11, 10, 9]]' >/tmp/few.json \
 && for ranks in 4 6; do NUMBA_CACHE_DIR=/compiled PYTHONDONTWRITEBYTECODE=1 /opt/meshwright/bin/meshwright \
      experts place --loads /tmp/few.json --ranks $ranks --nodes 2 --slots 12 --router 2 || exit 1; done

FROM python:3.12-slim
LABEL org.opencontainers.image.title="Meshwright" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 meshwright \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin meshwright \
 && install --directory --owner=10001 --group=10001 /data
COPY --from=build /opt/meshwright /opt/meshwright
COPY --from=build --chown=10001:10001 /compiled /data/compiled
# Compiled code is in the data folder, which a new volume starts with: the rest of the file system may be read-only, and
# another kind of processor compiles anew.
ENV PATH=/opt/meshwright/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/data/compiled \
    MESHWRIGHT_DATA_DIR=/data \
    MESHWRIGHT_HOST=0.0.0.0 \
    MESHWRIGHT_PORT=8080 \
    MESHWRIGHT_ACCESS=keys \
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

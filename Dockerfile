# The image of Headgate: the server, its command line and nothing to build with.
#
#   docker build -t headgate .
#   docker run --rm -p 8081:8081 -p 8080:8080 --read-only --tmpfs /tmp -v ./examples/rules:/etc/headgate/rules:ro headgate
#
# Debian and not Alpine: the native transport has no wheel for musl. The same for amd64 and arm64. Everything from an index is
# pinned with its hash (`make lock` keeps requirements/serve.lock); nothing else is fetched, so the same clone on the same base
# gives the same files. `make image` builds it without an engine and looks into it. A release names its bases by digest:
# --build-arg PYTHON=docker.io/library/python@sha256:… --build-arg BUILD=docker.io/library/python@sha256:…
#
# The server is the compiled build, so the base that it is built on has a C compiler; of that nothing gets into the image. For pure
# Python, which needs none: --build-arg COMPILE=0 --build-arg BUILD=docker.io/library/python:3.13-slim-bookworm

ARG PYTHON=docker.io/library/python:3.13-slim-bookworm
ARG BUILD=docker.io/library/python:3.13-bookworm

FROM ${BUILD} AS build
ARG COMPILE=1
# The time that archives and images carry: a release sets that of its commit.
ARG SOURCE_DATE_EPOCH=315532800
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH}
WORKDIR /src
RUN python3 -m venv /build
COPY requirements/serve.lock requirements/build.lock requirements/
# Wheels only: nobody else's source is compiled here.
RUN /build/bin/pip wheel --quiet --require-hashes --only-binary :all: --wheel-dir /wheels --requirement requirements/serve.lock \
 && /build/bin/pip install --quiet --require-hashes --only-binary :all: --requirement requirements/build.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY client client
COPY server server
RUN HEADGATE_COMPILE=${COMPILE} /build/bin/pip wheel --quiet --no-deps --no-index --no-build-isolation --wheel-dir /wheels ./client .
# An environment without pip and setuptools, and compiled for good: where it runs nothing can be written.
RUN python3 -m venv --without-pip /opt/headgate \
 && /build/bin/pip --python /opt/headgate/bin/python install --quiet --no-compile --no-index --find-links /wheels 'headgate[postgresql]' \
 && /opt/headgate/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/headgate/lib

FROM ${PYTHON}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Headgate" \
      org.opencontainers.image.description="A multi-region gRPC rate-limit service for Envoy and everything else" \
      org.opencontainers.image.source="https://github.com/headgate/headgate" \
      org.opencontainers.image.documentation="https://github.com/headgate/headgate/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The base's own pip goes too. The user is written by hand: useradd would write today's date beside it.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/site-packages/* /usr/local/lib/python3*/ensurepip \
           /usr/bin/pip* /usr/lib/python3/dist-packages/pip* /usr/lib/python3/dist-packages/setuptools* \
 && echo 'headgate:x:10001:' >> /etc/group \
 && echo 'headgate:x:10001:10001:Headgate:/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && mkdir -p /etc/headgate/rules /var/lib/headgate /run/headgate \
 && chown 10001:10001 /var/lib/headgate /run/headgate
COPY --from=build /opt/headgate /opt/headgate
# Where envoyproxy/ratelimit's command is expected, as by Envoy Gateway. Rules are named in a file and not in a variable: its variables
# win over the file.
RUN ln -s /opt/headgate/bin/headgate-ratelimit /bin/ratelimit \
 && echo 'rules: /etc/headgate/rules' > /opt/headgate/headgate.yaml
ENV PATH=/opt/headgate/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 HEADGATE_CONFIG=/opt/headgate/headgate.yaml
WORKDIR /
USER 10001:10001
# gRPC 8081, HTTP 8080 (health, /json), exchange between regions 8082.
EXPOSE 8080 8081 8082
# For Docker and Compose; Kubernetes has probes of its own. It asks the port of HEADGATE_HTTP.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ.get('HEADGATE_HTTP', ':8080').rpartition(':')[2] + '/healthz', timeout=2)"]
STOPSIGNAL SIGTERM
# No shell between: the server is process 1 and gets the signal.
ENTRYPOINT ["headgate"]
CMD ["serve"]

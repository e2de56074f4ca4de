# filesecbox in a container. Build it with BuildKit, which is Docker's default since version 23:
#
#   docker build -t filesecbox .
#
# How to run it, and what each flag of `docker run` buys: docs/DEPLOYMENT.md.

# The images to begin with. Both are of one Debian release, so that the binary finds the C library it was linked with.
ARG RUST_IMAGE=rust:1.95-slim-trixie
ARG RUNTIME_IMAGE=debian:trixie-slim
# Where the binary comes from: the stage `build`, or an image that has it at /filesecbox.
ARG BINARY=build

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY . .
# Symbols stay, so that a backtrace still names functions; line tables are three quarters of the file.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package filesecbox && \
    strip --strip-debug -o /filesecbox target/release/filesecbox

FROM ${BINARY} AS binary

FROM ${RUNTIME_IMAGE}

# The programs that commands may use. Add others here and name them in `commands.extra`; those in
# policy/rules/helpers.toml need no naming.
RUN apt-get update && \
    apt-get install --yes --no-install-recommends \
        bash ca-certificates coreutils curl dash diffutils findutils grep gzip mawk python3 python3-pip sed tar \
        unzip zip && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/* /var/log/apt /var/log/*.log

# The service's own account, and its data directory: other accounts may pass through to what they know, not look.
RUN echo 'filesecbox:x:10001:' >> /etc/group && \
    echo 'filesecbox:x:10001:10001:filesecbox:/nonexistent:/usr/sbin/nologin' >> /etc/passwd && \
    install -d -m 0755 /webIde && \
    install -d -m 0711 -o 10001 -g 10001 /webIde/product

COPY --from=binary --chown=0:0 /filesecbox /usr/local/bin/filesecbox

ENV FILESECBOX_LISTEN=0.0.0.0:8003 \
    FILESECBOX_ROOT=/webIde/product
# A volume also because the container's own root is an overlay, on which no other overlay can stand.
VOLUME /webIde/product
EXPOSE 8003
USER 10001:10001
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=3 CMD ["filesecbox", "health"]

# No init in front: the launcher of commands adopts and reaps what they leave, and the kernel keeps process 1 from being
# killed by any process of the container.
ENTRYPOINT ["filesecbox"]
CMD ["serve"]

ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="filesecbox" \
      org.opencontainers.image.description="Layered skills and private workspaces for AI agents, with isolated command execution, over REST" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

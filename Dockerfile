# A static keelson on nothing. `make image` builds it.
FROM rust:1.95-alpine AS build
RUN apk add --no-cache musl-dev gcc g++ make cmake perl linux-headers protobuf-dev
WORKDIR /src
# As in the Makefile.
ENV AWS_LC_SYS_NO_JITTER_ENTROPY=1
# Dependencies first, on an empty crate: this layer is built again only when they change.
COPY Cargo.toml Cargo.lock ./
COPY benches benches
RUN mkdir src && touch src/lib.rs && echo 'fn main() {}' | tee build.rs > src/main.rs \
 && cargo build --release --locked && rm -rf src build.rs
COPY build.rs ./
COPY build build
COPY proto proto
COPY src src
RUN touch build.rs src/main.rs src/lib.rs && cargo build --release --locked \
 && mkdir -p /out/usr/local/bin /out/data /out/tmp \
 && cp target/release/keelson /out/usr/local/bin/keelson \
 && ln -s keelson /out/usr/local/bin/kube-apiserver

FROM scratch
# kube-apiserver is the same binary, so that a static pod whose image is swapped starts it with its own command line.
COPY --from=build /out/ /
ENV PATH=/usr/local/bin
VOLUME /data
EXPOSE 6443
ENTRYPOINT ["keelson"]
CMD ["--data-dir=/data"]

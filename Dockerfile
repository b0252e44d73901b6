# A daemon, a worker or the command line, whichever words follow: docker build -t jqd . && docker run jqd --help
# The suite runs on this Python.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm
COPY requirements-all.txt /tmp/
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements-all.txt && rm /tmp/requirements-all.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl && rm -r /wheels \
 && useradd --system --uid 7420 jqd && install --directory --owner jqd --mode 0700 /var/lib/jqd
USER jqd
ENV JQD_DATA_DIR=/var/lib/jqd JQD_LOG__FORM=json
# The journal is what was promised to pushers: one volume for each daemon, never shared.
VOLUME /var/lib/jqd
# Of the daemon, and of `jqd ui`.
EXPOSE 7420 7422
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=5m CMD ["jqd", "status", "-o", "json"]
ENTRYPOINT ["jqd"]
CMD ["serve"]

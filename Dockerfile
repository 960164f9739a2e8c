# One image for server, feeder and client: the `mavstream` command decides.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/mavstream
ARG EXTRAS=server,page
# The dependencies, with an empty package: a changed source line does not install them again.
COPY pyproject.toml ./
RUN touch README.md LICENSE && mkdir protocol client server feeder page spark experiments \
    && /opt/mavstream/bin/pip install --no-cache-dir --disable-pip-version-check ".[${EXTRAS}]"
COPY README.md LICENSE ./
COPY protocol protocol
COPY client client
COPY server server
COPY feeder feeder
COPY page page
COPY spark spark
COPY experiments experiments
RUN /opt/mavstream/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --force-reinstall .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data mavstream \
    && install --directory --owner mavstream /data /feed /tokens /admin-token /feeder-token
# Only the data jobs need Java.
ARG JAVA=
RUN if [ -n "$JAVA" ]; then apt-get update && apt-get install -y --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/*; fi
COPY --from=build /opt/mavstream /opt/mavstream
# A new volume at /feed begins with the dataset of the package, which the data jobs replace.
RUN cp --recursive /opt/mavstream/lib/python3*/site-packages/mavstream_feeder/data/homes /feed/homes \
    && chown --recursive mavstream /feed/homes
ENV PATH=/opt/mavstream/bin:$PATH PYTHONUNBUFFERED=1
USER mavstream
# No VOLUME: each container without one of its own would leave an anonymous volume behind. Mount one at /data
# to keep the data of a server.
WORKDIR /data
EXPOSE 8000 8001
ENTRYPOINT ["mavstream"]
# Loopback inside the container only. To be reached from outside it needs --host 0.0.0.0 and tokens.
CMD ["serve", "--data", "/data"]

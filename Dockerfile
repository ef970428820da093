# ottla as an image: docker build -t ottla . ; docker run -p 9092:9092 ottla
FROM python:3.13 AS build
COPY . /src
RUN pip wheel --no-cache-dir --wheel-dir /wheels /src

FROM python:3.13-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels ottla && rm -r /wheels \
 && useradd --system --uid 10001 --home-dir /var/lib/ottla --create-home ottla
COPY packaging/container-start /usr/local/bin/container-start
USER ottla
VOLUME /var/lib/ottla
EXPOSE 9092 9093
ENV KAFKA_LOG_DIRS=/var/lib/ottla/data \
    KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    OTTLA_OTTLA_ADMIN_LISTENER=127.0.0.1:8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
ENTRYPOINT ["/usr/local/bin/container-start"]

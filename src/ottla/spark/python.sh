#!/bin/sh
# Starts Python for Spark on the driver's machine, with the installed PySpark. Spark puts a zip of PySpark's sources before it, which is the
# same, and which each process would compile again: half a second of processor time.
set -f  # an entry is no pattern
path=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) path=${path:+$path:}$entry ;;
    esac
done
export PYTHONPATH="$path"
exec "${OTTLA_SPARK_PYTHON:-python3}" "$@"

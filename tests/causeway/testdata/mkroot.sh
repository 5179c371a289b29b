# Makes a small root for containers in ./root, of programs of the sandbox and the libraries that they
# need: a shell, curl, and Python as a web server.
set -e
mkdir -p root/bin root/tmp root/usr/lib
for p in sh cat id env grep curl getent python3; do cp -L "$(command -v $p)" root/bin/; done
ldd root/bin/* | grep -o '/[^ ]*\.so[^ ]*' | sort -u >libraries
ls /lib/x86_64-linux-gnu/libnss_*.so.2 /lib/x86_64-linux-gnu/libresolv.so.2 >>libraries
while read -r l; do mkdir -p "root$(dirname "$l")"; cp -L "$l" "root$l"; done <libraries
cp -r /usr/lib/python3.11 root/usr/lib/
rm -rf root/usr/lib/python3.11/test root/usr/lib/python3.11/__pycache__
ln -s ../bin root/usr/bin
mkdir app compose
cat >app/Dockerfile <<'D'
FROM base:1
RUN id -u >/built && env | grep -c =/dev/sandbox-roots.crt >>/built
CMD ["cat", "/built"]
D
sed s,base:1,localhost/base:1, app/Dockerfile >app/Containerfile
cat >compose/docker-compose.yml <<'C'
version: "3"
services:
  web:
    image: base:1
    working_dir: /tmp
    command: sh -c 'echo from the web service >page; exec python3 -m http.server 80'
    ports: ["8080:80"]
  ask:
    build: {context: ../app}
    depends_on: [web]
    command: curl -sS --retry 20 --retry-all-errors http://web/page
C

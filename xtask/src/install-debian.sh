#!/bin/sh
# Installs Debian's packages and leaves the services in them stopped: while this runs, policy-rc.d forbids the
# start of any service. A policy that somebody else wrote is left alone. Ours goes away with this shell, also
# when it is interrupted: a forgotten one would keep every later package from starting its service.
# Nor do they start at the next boot: the tests start what they need themselves.
set -eu
policy=/usr/sbin/policy-rc.d
marker="# for the time of one install by cargo xtask peers"
if [ ! -e "$policy" ] || grep -qxF "$marker" "$policy"; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM HUP
    printf '#!/bin/sh\n%s\nexit 101\n' "$marker" > "$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get -qq update
apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends "$@" < /dev/null
for package in "$@"; do
    case $package in
        collectd-core) unit=collectd.service ;;
        etcd-server) unit=etcd.service ;;
        openssh-server) unit=ssh.service ;;
        prometheus-node-exporter) unit=prometheus-node-exporter.service ;;
        *) continue ;;
    esac
    systemctl --quiet disable "$unit"
done

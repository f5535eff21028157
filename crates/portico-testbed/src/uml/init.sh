#!/bin/sh
# The first program inside. The host's files can be read and not written; what is written stays in memory.
export PATH=/run/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/run/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /run
mkdir -p /dev/pts /dev/shm /run/bin /run/lib /run/lock /run/tmp
mount -t devpts pts /dev/pts
mount -t tmpfs tmp /dev/shm
stty -F /dev/ttyS0 raw -echo
exec </dev/null >/dev/ttyS0 2>&1

# The package keeps its modules where nobody looks for them.
ln -s /usr/lib/uml/modules /run/lib/modules
# bpfilter takes every question of iptables to a program that answers none.
printf '#!/bin/sh\ncase $* in *bpfilter*) exit 1 ;; esac\nexec %s -d /run "$@"\n' "$(command -v modprobe)" >/run/bin/modprobe
chmod +x /run/bin/modprobe
echo /run/bin/modprobe >/proc/sys/kernel/modprobe
# This kernel's nf_tables knows neither IPv4 nor IPv6.
for program in iptables ip6tables; do
  for what in '' -save -restore; do ln -s "$(command -v xtables-legacy-multi)" /run/bin/$program$what; done
done

# What is not loaded by itself when it is used.
for module in ipv6 ip_vs nf_conntrack_netlink; do
  modprobe $module || echo "the module $module of Linux $(uname -r) cannot be loaded from /usr/lib/uml/modules"
done
ip link set lo up
ulimit -n 65536

# Makes a machine of its own out of new namespaces (mount, net, pid, uts, ipc, cgroup), and runs a program in it.
# Arguments: a directory for what the machine writes, the address of its bridge, the program and its arguments.
set -eu
work=$1
address=$2
shift 2

mount --make-rprivate /
hostname node-0
ip link set lo up
# The only network of the machine. CNI finds it made.
ip link add cni0 type bridge
ip addr add "$address" dev cni0
ip link set cni0 up

mount -t proc proc /proc
# runc and kubelet read mountinfo: the machine's own /sys may not stay below the new one.
umount -l /sys
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /sys/fs/cgroup
for controllers in cpuset cpu cpuacct blkio memory devices freezer pids; do
    mkdir "/sys/fs/cgroup/$controllers"
    mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/$controllers"
done
mkdir /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd

mount -t tmpfs tmpfs /run
mkdir -p "$work"
mount -t tmpfs tmpfs "$work"
for directory in etc var; do
    mkdir -p "$work/$directory/upper" "$work/$directory/work"
    mount -t overlay -o "lowerdir=/$directory,upperdir=$work/$directory/upper,workdir=$work/$directory/work" overlay "/$directory"
done
for directory in /var/lib/kubelet /var/lib/containerd; do
    mkdir -p "$directory"
    mount -t tmpfs tmpfs "$directory"
done

# kubelet sets these for the whole machine where they differ. It finds them as it wants them.
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    path="/proc/sys/${setting%=*}"
    [ -e "$path" ] || continue
    wanted="$work/$(echo "${setting%=*}" | tr / _)"
    echo "${setting#*=}" > "$wanted"
    mount --bind "$wanted" "$path"
done
# kubelet passes mounts on to containers.
mount --make-rshared /

"$@"

package vm

// Where names the place a command runs in.
type Where string

// The two places. The command finds its own in the environment variable KUBE_IPVS_WHERE.
const (
	InNetns Where = "netns" // a fresh network namespace of the host's kernel
	InVM    Where = "vm"    // a kernel of its own under QEMU
)

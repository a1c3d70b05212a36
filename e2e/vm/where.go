package vm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Where names the place a command runs in.
type Where string

// The two places. The command finds its own in the environment variable KUBE_IPVS_WHERE.
const (
	InNetns Where = "netns" // a fresh network namespace of the host's kernel
	InVM    Where = "vm"    // a kernel of its own under QEMU
)

// privateDir is the only directory of the host that a command in a namespace sees empty and may fill. Shares and copies of a
// run that may happen in either place have to be below it.
const privateDir = "/run/"

// Need is what a command wants of a kernel.
type Need string

// The requirements of commands. Each kernel that the VM boots has both.
const (
	NeedIPVS     Need = "ipvs"     // IPVS and the dummy link
	NeedIPTables Need = "iptables" // iptables of both kinds, and links between namespaces
)

// ParseNeed reads one of them.
func ParseNeed(text string) (Need, error) {
	if need := Need(text); need == NeedIPVS || need == NeedIPTables {
		return need, nil
	}
	return "", fmt.Errorf("need %q: want %s or %s", text, NeedIPVS, NeedIPTables)
}

// Locate returns where a run on this host would happen. The error reports why it has to be the VM; it is nil for InNetns.
func Locate(ctx context.Context, need Need) (Where, error) {
	if err := HostCan(ctx, need); err != nil {
		return InVM, err
	}
	return InNetns, nil
}

// RunAnywhere runs the command in a network namespace of the host if its kernel can do there what the command needs, else in the VM.
func RunAnywhere(ctx context.Context, o Options) (int, error) {
	o.Defaults()
	if err := errors.Join(o.Validate(), o.validateAnywhere()); err != nil {
		return StatusBroken, err
	}
	log := newProgress(o.Log)
	if o.NFTOnly || o.NoIPVS {
		return Run(ctx, o) // what the command must not find is as important as what it needs
	}
	where, reason := Locate(ctx, o.Need)
	if where == InNetns {
		log.printf("where: a network namespace of this host")
		return RunInNetns(ctx, o)
	}
	log.printf("where: a VM, because %v", reason)
	return Run(ctx, o)
}

// validateAnywhere refuses what would work in one of the places only, so that a mistake shows on every machine.
func (o *Options) validateAnywhere() error {
	var guests []string
	for _, share := range o.Shares {
		guests = append(guests, share.Guest)
	}
	for _, file := range o.Copies {
		guests = append(guests, file.Guest)
	}
	outside := slices.DeleteFunc(guests, func(path string) bool { return strings.HasPrefix(path, privateDir) })
	if len(outside) > 0 {
		return fmt.Errorf("guest path %s: a run that may happen in a namespace can place files below %s only",
			strings.Join(outside, ", "), privateDir)
	}
	return nil
}

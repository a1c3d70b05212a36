package host

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/modules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
)

// Node is the node that is asked.
type Node struct {
	files   procfs.Files
	runDir  string
	sysctls *sysctl.Handle
	modules *modules.Loader
}

// New returns the node of some files, with the run directory of an agent on it.
func New(files procfs.Files, runDir string, sysctls *sysctl.Handle, modules *modules.Loader) *Node {
	return &Node{files: files, runDir: runDir, sysctls: sysctls, modules: modules}
}

// EnsureModule loads a module unless a sysctl shows that the kernel has it.
func (h *Node) EnsureModule(ctx context.Context, module, sysctl string) error {
	return h.modules.Ensure(ctx, module, sysctl)
}

// ModuleFix returns the remedy for a module that is missing.
func (h *Node) ModuleFix(name string) string { return h.modules.Fix(name) }

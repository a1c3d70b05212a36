package host

import (
	"context"
	"fmt"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

// CheckOptions select among the checks of this package.
type CheckOptions struct {
	// IPv6 asks for what serving IPv6 needs.
	IPv6 bool
	// NoIPVS leaves out what IPVS alone needs.
	NoIPVS bool
	// ConnTabBits is the wanted size of the IPVS connection table as a power of
	// two; 0 asks SuggestConnTabBits.
	ConnTabBits int
}

// connTabCheck is the name of the check that looks at IPVS's own table.
const connTabCheck = "ipvs connection table"

// Checks returns the questions about the kernel itself.
func (h *Node) Checks(opts CheckOptions) []diagnosis.Check {
	want := opts.ConnTabBits
	if want == 0 {
		want = SuggestConnTabBits(h.files)
	}
	checks := []diagnosis.Check{
		{Name: "kernel release", Run: h.checkRelease, Fix: "mount /proc"},
		{Name: "sysctls writable", Run: h.checkWritable,
			Fix: "mount the host's /proc/sys/net at /host/proc/sys/net, or set the sysctls on the host, or run privileged"},
		{Name: "connection tracking", Run: h.checkConntrack, Fix: h.modules.Fix("nf_conntrack")},
		{Name: connTabCheck, Run: func(context.Context) error { return h.checkConnTab(want) },
			Fix: fmt.Sprintf("echo 'options ip_vs conn_tab_bits=%d' > /etc/modprobe.d/ip_vs.conf and load ip_vs again, "+
				"or boot with ip_vs.conn_tab_bits=%d where it is built in", want, want)},
	}
	if opts.NoIPVS {
		checks = slices.DeleteFunc(checks, func(c diagnosis.Check) bool { return c.Name == connTabCheck })
	}
	if opts.IPv6 {
		checks = append(checks, diagnosis.Check{Name: "ipv6 forwarding", Run: h.checkForwarding6,
			Fix: "sysctl -w net.ipv6.conf.all.forwarding=1 (with accept_ra=2 on links that learn their router)"})
	}
	return checks
}

func (h *Node) checkRelease(context.Context) error {
	release, err := h.files.Release()
	if err != nil {
		return err
	}
	if _, ok := procfs.ParseVersion(release); !ok {
		return diagnosis.Warning(fmt.Errorf("kernel release %q has no version number", release))
	}
	return diagnosis.Note("%s", release)
}

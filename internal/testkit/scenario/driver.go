package scenario

import (
	"context"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// Start has the settings with which the agent runs.
type Start struct {
	// Flags are the agent's own, as a person would give them.
	Flags []string
	// Audit asks for rounds that look for drift, as often as the driver can;
	// without it there are none, so that a test sees what the ordinary path does.
	Audit bool
}

// Driver is one node: a kernel, real or not, and the agent on it. It serves one
// script; Status, Log and Text may be called at any time.
type Driver interface {
	// Start runs an agent and returns when it can be asked for its status.
	Start(s Start) error
	// Stop ends it as SIGTERM does, Kill as SIGKILL does. The kernel stays.
	Stop() error
	Kill() error
	// Status asks the running agent.
	Status(ctx context.Context) (agent.Status, error)
	// Log is what all agents of this driver have logged, as text.
	Log() string
	// Text prints rows of the kernel as their tool does; see Normal for kinds.
	Text(kind string) (string, error)
	// Tool changes the kernel behind the agent's back.
	Tool(args []string) error
	// Host makes these the addresses of the machine's own link, and no others.
	Host(addrs []netip.Addr) error
	// Gateway makes these the next hops of its default routes; a driver with a real
	// kernel refuses.
	Gateway(hops []netip.Addr) error
	// Failing makes these the endpoints of API servers that fail their probes, with the
	// reason of each; a driver with a real kernel refuses.
	Failing(endpoints map[netip.AddrPort]string) error
	// Plan prints what the agent, started so, would want in the kernel of this host,
	// by kind.
	Plan(s Start) (map[string]string, error)
	// Rows prints what the running agent wants in the kernel, by kind.
	Rows(ctx context.Context) (map[string]string, error)
	// Cleanup removes everything of ours; the agent must not run.
	Cleanup(s Start) error
	// Fault plans failures of kernel calls, Heal ends them. A driver with a real
	// kernel refuses.
	Fault(pkg string, spec []string) error
	Heal()
	// Pace is how often and how long to look for what is awaited.
	Pace() (interval, deadline time.Duration)
	// Close ends what still runs.
	Close()
}

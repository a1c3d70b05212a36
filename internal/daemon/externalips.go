package daemon

import (
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

func limitsExternalIPs(c config.Config) bool {
	return !c.AllowExternalIPs || len(c.ExternalIPCIDRs) > 0
}

// warnExternalIPs returns a function that logs once when Services have external IPs and nothing
// limits them: with one, a tenant takes the traffic of any address (CVE-2020-8554). One goroutine
// calls it.
func warnExternalIPs(log *zap.Logger, now wiring.Settings) func(services int) {
	warned := false
	return func(services int) {
		open := services > 0 && !limitsExternalIPs(now())
		if open && !warned {
			log.Warn("any Service may claim any address as an external IP (CVE-2020-8554); --external-ip-allowed-cidrs limits them", zap.Int("services with external IPs", services))
		}
		warned = open
	}
}

// externalIPs is an observer of the loop that reports how many Services have external IPs.
type externalIPs struct {
	agent.Observer
	report func(int)
}

// Counts implements agent.Observer.
func (o externalIPs) Counts(c agent.Counts) {
	o.Observer.Counts(c)
	o.report(c.External)
}

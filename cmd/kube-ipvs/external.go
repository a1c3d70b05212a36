package main

import (
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

func limitsExternalIPs(c config.Config) bool {
	return !c.AllowExternalIPs || len(c.ExternalIPCIDRs) > 0
}

// warnExternalIPs returns what warns once when Services have external IPs and nothing limits
// them: with one, a tenant takes the traffic of any address (CVE-2020-8554). It is for one
// goroutine.
func warnExternalIPs(log *zap.Logger, now settings) func(services int) {
	warned := false
	return func(services int) {
		open := services > 0 && !limitsExternalIPs(now())
		if open && !warned {
			log.Warn("any Service may claim any address as an external IP (CVE-2020-8554); --external-ip-allowed-cidrs limits them", zap.Int("services with external IPs", services))
		}
		warned = open
	}
}

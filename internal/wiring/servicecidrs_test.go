package wiring

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// ranges is an API server that has some ranges; nil is one that cannot be asked.
type ranges []string

func (r ranges) ServiceCIDRs(context.Context) (out []netip.Prefix, err error) {
	if r == nil {
		return nil, errors.New("no answer")
	}
	for _, text := range r {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out, nil
}

// TestWithServiceCIDRs: routes get the ranges of the API server, unless ranges are configured, and
// without ranges that cannot be ranges of Services.
func TestWithServiceCIDRs(t *testing.T) {
	api := ranges{"fd00:10:96::/112", "10.96.0.0/16", "10.96.0.0/16"}
	for _, tt := range []struct {
		name     string
		binding  string
		cidrs    []string
		api      ranges
		want     string
		warnings int
	}{
		{"routes", "route", nil, api, "[10.96.0.0/16 fd00:10:96::/112]", 0},
		{"configured", "route", []string{"10.97.0.0/16"}, api, "[10.97.0.0/16]", 0},
		{"addresses", "address", nil, api, "[]", 0},
		{"no answer", "route", nil, nil, "[]", 1},
		{"ranges of pods and of all", "route", nil, ranges{"10.244.0.0/20", "0.0.0.0/0", "10.96.0.0/16"}, "[10.96.0.0/16]", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := config.Defaults()
			s.Own.VIPBinding, s.Own.ServiceCIDRs, s.Proxy.ClusterCIDR = tt.binding, tt.cidrs, "10.244.0.0/16"
			c, err := s.Check("node-a")
			if err != nil {
				t.Fatal(err)
			}
			core, logs := observer.New(zap.WarnLevel)
			got := WithServiceCIDRs(t.Context(), zap.New(core), c, tt.api)
			if fmt.Sprint(got.ServiceCIDRs) != tt.want || logs.Len() != tt.warnings {
				t.Errorf("%v and %d warnings, want %s and %d", got.ServiceCIDRs, logs.Len(), tt.want, tt.warnings)
			}
		})
	}
}

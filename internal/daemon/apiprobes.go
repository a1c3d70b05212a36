package daemon

import (
	"context"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/apiprobe"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// newProber returns the prober of API servers. Its findings go to the loop.
func newProber(d *daemon) *apiprobe.Prober {
	return apiprobe.New(d.log, apiprobe.Options{
		Period: func() time.Duration { return d.live.now().APIServerProbe },
		Changed: func(ctx context.Context, failing map[netip.AddrPort]string) {
			if err := d.loop.SetFailing(ctx, failing); err != nil && ctx.Err() == nil {
				d.log.Warn("the state of API server endpoints is not applied", zap.Error(err))
			}
		},
	})
}

// apiServerProbes returns the metrics of a prober.
func apiServerProbes(p *apiprobe.Prober) telemetry.APIServerProbes {
	s := p.Status()
	return telemetry.APIServerProbes{
		Up: s.Probed - s.Out - s.Ignored, Out: s.Out, Ignored: s.Ignored,
		Answered: s.Answered, Failed: s.Failed, Unknown: s.Unknown,
	}
}

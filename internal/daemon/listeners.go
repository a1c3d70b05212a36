package daemon

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// listen serves a handler until ctx ends.
func (d *daemon) listen(ctx context.Context, name, address string, h http.Handler, failed events.Kind) error {
	return httpd.Serve(ctx, d.log, httpd.Listener{
		Name: name, Address: address, Handler: h, HardFail: d.live.now().BindHardFail,
		Failed: func(err error) { d.sendFinalEvent(failed, err) },
	})
}

// finalEventTimeout bounds the last Event of a process that is about to end.
const finalEventTimeout = time.Second

func (d *daemon) sendFinalEvent(kind events.Kind, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), finalEventTimeout)
	defer cancel()
	d.events.SendFinal(ctx, kind, err.Error())
}

func (d *daemon) healthHandler() http.Handler {
	return httpd.HealthHandler(httpd.HealthOptions{Report: d.health().report, Count: d.metrics.Probed})
}

func (d *daemon) metricsHandler(c config.Config) http.Handler {
	h := httpd.MetricsHandler(httpd.MetricsOptions{
		Metrics: d.metrics.Handler(), SLIs: d.metrics.SLIs(),
		Mode:    func() string { return string(d.live.now().Mode) },
		Configz: func() ([]byte, error) { return d.live.now().Configz() },
		Flags:   d.flags,
		Status: func() httpd.StatusInfo {
			return httpd.StatusInfo{Version: version.String(), Emulation: "1.37", GoVersion: runtime.Version(), Started: d.started, Uptime: time.Since(d.started)}
		},
		Verbosity: d.setVerbosity,
		Profiling: c.Profiling,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			d.metrics.Pinged() // as the library of Kubernetes counts it
		}
		h.ServeHTTP(w, r)
	})
}

// flags returns all flags of the process with their values, defaults included.
func (d *daemon) flags() (out [][2]string) {
	d.reload.flags.VisitAll(func(f *pflag.Flag) { out = append(out, [2]string{f.Name, f.Value.String()}) })
	return out
}

// debugFrom is the lowest level of klog (-v) at which the log has debug messages.
const debugFrom = 4

// setVerbosity sets the log level by a level of klog, until the next reload.
func (d *daemon) setVerbosity(text string) error {
	v, err := strconv.ParseInt(text, 10, 32)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a level such as 2", text)
	}
	d.reload.level.SetLevel(zap.InfoLevel)
	if v >= debugFrom {
		d.reload.level.SetLevel(zap.DebugLevel)
	}
	return nil
}

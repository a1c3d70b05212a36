package cli

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/hostile"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

const (
	// mostInput is a twelfth of the largest object in the API server (1.5 MiB of etcd), and the
	// limits of one Service are a sixteenth of the defaults. The reason is that the fuzzer gives up
	// an input after ten seconds. The cost for each byte and row is the same.
	mostInput                   = 128 << 10
	fuzzedFrontends, fuzzedRows = 256, 1 << 14
	// The memory that may be allocated for each byte of input and for each resulting row, and the
	// minimum for a small input.
	bytesForByte, bytesForRow, bytesAtLeast = 1500, 6000, 64 << 20
)

// FuzzHostileTenant makes Services with many ports, source ranges, addresses, endpoints and
// claimants, and bounds the rows that come of one and the memory that each byte of them costs.
// KUBE_IPVS_WORST names a file that gets the inputs that cost most time and memory for each byte.
func FuzzHostileTenant(f *testing.F) {
	f.Add(uint16(4096), uint16(0), uint16(0), uint16(1), uint16(1), true)
	f.Add(uint16(1), uint16(32000), uint16(0), uint16(1), uint16(1), false)
	f.Add(uint16(1000), uint16(0), uint16(1000), uint16(1), uint16(1), false)
	f.Add(uint16(5), uint16(0), uint16(1), uint16(1), uint16(4000), false)
	f.Add(uint16(2000), uint16(4000), uint16(0), uint16(3000), uint16(1), true)
	var worst worst
	f.Fuzz(func(t *testing.T, ports, ranges, addresses, endpoints, claimants uint16, local bool) {
		tenant := hostile.Tenant{
			Ports: int(max(1, ports)), Ranges: int(ranges), Addresses: int(addresses), Endpoints: int(endpoints), Claimants: int(max(1, claimants)), Local: local,
		}
		for tenant.Size() > mostInput { // more than a tenant can have
			tenant.Claimants = max(1, tenant.Claimants/2)
			if tenant.Claimants == 1 {
				tenant.Endpoints, tenant.Ranges, tenant.Addresses, tenant.Ports = tenant.Endpoints*3/4, tenant.Ranges*3/4, tenant.Addresses*3/4, max(1, tenant.Ports*7/8)
			}
		}
		for _, mode := range []config.Mode{config.ModeIPVS, config.ModeIPTables} {
			c := growing(t, mode)
			c.ServiceFrontends, c.ServiceRows, c.ServiceRanges = fuzzedFrontends, fuzzedRows, fuzzedFrontends
			rows := boundRows(t, c, tenant)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			everything(t, c, tenant)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			allocated := int(after.TotalAlloc - before.TotalAlloc)
			if most := bytesAtLeast + bytesForByte*tenant.Size() + bytesForRow*rows*tenant.Claimants; allocated > most {
				t.Errorf("%s: %+v, %d bytes, has %d bytes allocated, want %d at most", mode, tenant, tenant.Size(), allocated, most)
			}
			worst.keep(tenant, mode, took, allocated)
		}
	})
}

// boundRows checks what one Service may have in the kernel, and returns what it has.
func boundRows(t *testing.T, c config.Config, tenant hostile.Tenant) (rows int) {
	t.Helper()
	known := catalog.New(zap.NewNop(), c.NodeName, model.FromFile)
	tenant.Claimants = 1
	tenant.Deliver(known)
	batch := known.Take()
	families := model.Families()
	in := batch.Services[0]
	p := wiring.CompilerFor(wiring.Static(c), families[:])(supposedHost(c, batch)).Compile(in.ID, in.Service, in.Slices)
	destinations, ranges := 0, 0
	for _, fe := range p.Frontends {
		destinations, ranges = destinations+len(fe.Backends), ranges+len(fe.SourceRanges)
	}
	if n := len(p.Frontends); n > c.ServiceFrontends || n > 1 && (destinations > c.ServiceRows || ranges > c.ServiceRows) {
		t.Errorf("%+v has %d frontends, %d destinations and %d ranges", tenant, n, destinations, ranges)
	}
	return destinations + ranges
}

// worst are the dearest inputs so far of this process.
type worst struct{ time, memory float64 }

func (w *worst) keep(tenant hostile.Tenant, mode config.Mode, took time.Duration, allocated int) {
	path := os.Getenv("KUBE_IPVS_WORST")
	if path == "" || tenant.Size() < 10_000 { // small ones have what each process costs
		return
	}
	ns, bytes := float64(took.Nanoseconds())/float64(tenant.Size()), float64(allocated)/float64(tenant.Size())
	if ns <= w.time && bytes <= w.memory {
		return
	}
	w.time, w.memory = max(w.time, ns), max(w.memory, bytes)
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return // a figure less
	}
	defer out.Close()
	fmt.Fprintf(out, "%8.0f ns and %6.0f bytes for each of %d bytes, %s in all: %s %+v\n", ns, bytes, tenant.Size(), took.Round(time.Millisecond), mode, tenant)
}

package plane

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

const auditText = `{"auditID":"a","stage":"ResponseStarted","requestURI":"/api/v1/services?allowWatchBookmarks=true&sendInitialEvents=true&timeoutSeconds=400&watch=true","userAgent":"fleet-x/1","objectRef":{"resource":"services"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:01.5Z"}
{"auditID":"a","stage":"ResponseComplete","requestURI":"/api/v1/services?allowWatchBookmarks=true&sendInitialEvents=true&timeoutSeconds=400&watch=true","userAgent":"fleet-x/1","objectRef":{"resource":"services"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:01.5Z"}
{"auditID":"b","stage":"ResponseStarted","requestURI":"/api/v1/services?resourceVersion=12&watch=true","userAgent":"fleet-x/1","objectRef":{"resource":"services"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:02Z"}
{"auditID":"c","stage":"ResponseComplete","requestURI":"/api/v1/nodes?limit=1","userAgent":"fleet-x/1","objectRef":{"resource":"nodes"},"responseStatus":{"code":403},"requestReceivedTimestamp":"2026-01-01T00:00:03Z"}
{"auditID":"d","stage":"ResponseComplete","requestURI":"/api/v1/nodes?resourceVersion=0","userAgent":"fleet-x/1","objectRef":{"resource":"nodes"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:04Z"}
{"auditID":"e","stage":"ResponseCom`

func TestRequestsOfAnAuditLog(t *testing.T) {
	got, err := parseRequests(strings.NewReader(auditText))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"list by watch services", "watch services", "count nodes", "list nodes"}
	if len(got) != len(want) {
		t.Fatalf("%d requests, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if got[i].String() != want[i] {
			t.Errorf("request %d is a %s, want %s", i, got[i], want[i])
		}
	}
	if got[0].Timeout != 400*time.Second || got[2].Code != 403 || got[1].Received.Second() != 2 {
		t.Errorf("details are lost: %+v", got)
	}
	if _, err := parseRequests(strings.NewReader("no JSON\n")); err == nil {
		t.Error("what is no audit log was read as one")
	}
}

func TestMetrics(t *testing.T) {
	const m = Metrics(`# TYPE apiserver_watch_events_total counter
apiserver_watch_events_total{group="",resource="services",version="v1"} 10
apiserver_watch_events_total{group="discovery.k8s.io",resource="endpointslices",version="v1"} 2.5e+06
apiserver_watch_events_total_else{resource="services"} 100
apiserver_watch_events_total{group="",resource="services",version="v2"} 5
go_goroutines 7
`)
	got := m.By("apiserver_watch_events_total", "resource", nil)
	if len(got) != 2 || got["services"] != 15 || got["endpointslices"] != 2.5e6 {
		t.Errorf("by resource: %v", got)
	}
	if sum := m.Sum("apiserver_watch_events_total", map[string]string{"resource": "services", "version": "v2"}); sum != 5 {
		t.Errorf("of one version: %v, want 5", sum)
	}
}

func TestEachVersionIsAnotherSlice(t *testing.T) {
	const endpoints = 3
	first := slice(7, endpoints, 2, 0)
	if len(first.Endpoints) != endpoints {
		t.Fatalf("%d endpoints", len(first.Endpoints))
	}
	for version := 1; version <= endpoints; version++ {
		differ := 0
		for i, e := range slice(7, endpoints, 2, version).Endpoints {
			if e.Addresses[0] == first.Endpoints[i].Addresses[0] {
				continue
			}
			differ++
			if netip.MustParseAddr(e.Addresses[0]) != MarkerAddr(version) {
				t.Errorf("version %d has %s, want %s", version, e.Addresses[0], MarkerAddr(version))
			}
		}
		if differ != 1 {
			t.Errorf("version %d differs in %d endpoints, want 1", version, differ)
		}
	}
}

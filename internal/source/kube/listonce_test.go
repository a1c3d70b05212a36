package kube_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// answer writes JSON with a status.
func answer(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// listed is a page of a list, with what continues it.
func listed(kind, version, next, items string) http.HandlerFunc {
	return answer(http.StatusOK, `{"kind":"`+kind+`List","apiVersion":"`+version+`","metadata":{"resourceVersion":"9","continue":"`+next+`"},"items":[`+items+`]}`)
}

// TestOnce: everything is listed one time, in as many pages as there are, and delivered as
// complete.
func TestOnce(t *testing.T) {
	s := newServer(t)
	service := func(name, ip string) string {
		return `{"metadata":{"namespace":"default","name":"` + name + `"},"spec":{"clusterIP":"` + ip + `"}}`
	}
	s.play("services", listed("Service", "v1", "more", service("a", "10.96.0.1")), listed("Service", "v1", "", service("b", "10.96.0.2")))
	s.play("endpointslices", listed("EndpointSlice", "discovery.k8s.io/v1", "", ""))
	s.play("nodes", listed("Node", "v1", "", `{"metadata":{"name":"here"}}`))
	out := &sink{}
	if err := kube.Once(t.Context(), s.clientOf("{}"), kube.Options{Node: "here"}, out); err != nil {
		t.Fatal(err)
	}
	want := "node here = kube  [] []\nservice default/a = kube[10.96.0.1]\nservice default/b = kube[10.96.0.2]\nstate complete"
	if diff := cmp.Diff(want, strings.TrimSpace(out.String())); diff != "" {
		t.Errorf("sink (-want +got):\n%s", diff)
	}
	if got := s.requests("services"); len(got) != 2 {
		t.Errorf("requests %q, want two", got)
	}
}

// TestOnceFails: the first request that fails is the answer, and nothing is asked again.
func TestOnceFails(t *testing.T) {
	for name, tt := range map[string]struct {
		slices http.HandlerFunc
		want   []string
	}{
		"a right that is missing": {
			answer(http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`),
			[]string{"list endpointslices: the API server does not allow it", "a kubelet's kubeconfig has no such right"},
		},
		"a server that cannot":    {answer(http.StatusInternalServerError, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`), []string{"the API server reports an internal error"}},
		"no API server":           {answer(http.StatusOK, `{"items":[]}`), []string{"list endpointslices"}},
		"a page that was dropped": {answer(http.StatusGone, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`), []string{"list endpointslices"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.play("nodes", listed("Node", "v1", "", ""))
			s.play("endpointslices", tt.slices)
			out := &sink{}
			err := kube.Once(t.Context(), s.clientOf("{}"), kube.Options{Node: "here"}, out)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q", err, want)
				}
			}
			if got := s.requests("endpointslices"); len(got) != 1 || strings.Contains(out.String(), "complete") {
				t.Errorf("requests %q, sink %s", got, out)
			}
		})
	}
}

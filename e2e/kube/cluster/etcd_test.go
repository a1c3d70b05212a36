package cluster

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestCompact holds the calls to etcd's documentation; the smoke test of e2e/kube holds them to etcd itself.
func TestCompact(t *testing.T) {
	tests := []struct {
		name, compaction, wantErr string
		status                    int
		want                      int64
	}{
		{name: "fine", status: http.StatusOK, compaction: "{}", want: 42},
		{name: "refused", status: http.StatusBadRequest, compaction: "required revision has been compacted", wantErr: "has been compacted"},
		{name: "not JSON", status: http.StatusOK, compaction: "hello", wantErr: "invalid character"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var calls []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				calls = append(calls, r.URL.Path+" "+string(body))
				if r.URL.Path == "/v3/maintenance/status" {
					_, _ = io.WriteString(w, `{"header":{"revision":"42"}}`)
					return
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.compaction)
			}))
			defer server.Close()
			e := &etcd{url: server.URL, http: server.Client()}
			got, err := e.compact(t.Context())
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("error = %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("compact = %d, %v, want %d", got, err, tt.want)
			}
			if want := `/v3/kv/compaction {"physical":true,"revision":"42"}`; !slices.Contains(calls, want) {
				t.Errorf("calls %q lack %s", calls, want)
			}
		})
	}
}

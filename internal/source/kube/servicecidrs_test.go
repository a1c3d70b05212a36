package kube_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestServiceCIDRs: the ranges of all objects are listed, also of an object that is being deleted.
func TestServiceCIDRs(t *testing.T) {
	s := newServer(t)
	s.play("servicecidrs", listed("ServiceCIDR", "networking.k8s.io/v1", "", `{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/16","fd00:10:96::/112"]}},`+
		`{"metadata":{"name":"more","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"cidrs":["10.98.0.7/16"]}},{"metadata":{"name":"odd"}}`))
	got, err := s.clientOf("{}").ServiceCIDRs(t.Context())
	if want := "[10.96.0.0/16 fd00:10:96::/112 10.98.0.0/16]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
}

// TestServiceCIDRsCannotBeListed: the error says what is missing.
func TestServiceCIDRsCannotBeListed(t *testing.T) {
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"an older server": {fail(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource"), "Kubernetes 1.33"},
		"no right":        {fail(http.StatusForbidden, metav1.StatusReasonForbidden, "no"), "lacks the verb list for servicecidrs.networking.k8s.io"},
		"no JSON":         {text(http.StatusOK, "application/json", "<html>"), "list servicecidrs.networking.k8s.io"},
		"no range":        {listed("ServiceCIDR", "networking.k8s.io/v1", "", `{"spec":{"cidrs":["10.96.0.0"]}}`), "10.96.0.0"},
		"endless":         {text(http.StatusOK, "application/json", strings.Repeat(" ", 2<<20)), "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.play("servicecidrs", tt.answer)
			if got, err := s.clientOf("{}").ServiceCIDRs(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v, want an error with %q", got, err, tt.want)
			}
		})
	}
}

package source_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// showPolicy prints what a policy asks for, a line each.
func showPolicy(p *model.Policy) (out []string) {
	if p == nil {
		return nil
	}
	add := func(asked bool, format string, args ...any) {
		if asked {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(!p.Scheduler.IsZero(), "scheduler %s", p.Scheduler)
	if p.Weight != nil {
		add(true, "weight %d", *p.Weight)
	}
	add(p.OnePacket, "one packet")
	add(p.Skip, "skip")
	if p.Drain != nil {
		add(true, "drain %s", *p.Drain)
	}
	add(p.SlowStart > 0, "slow start %s", p.SlowStart)
	add(p.Limit != model.Limit{}, "limit %d,%d", p.Limit.Upper, p.Limit.Lower)
	add(p.Forward != model.ForwardNAT, "forward %s", p.Forward)
	add(p.GUE != 0, "gue %d", p.GUE)
	return out
}

func annotated(annotations map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: annotations}}
}

// TestPolicy: every key, each with what it may say.
func TestPolicy(t *testing.T) {
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		want        string
	}{
		{"none", nil, ""},
		{"those of others", map[string]string{"drain": "5m", "example.com/skip": "true", "kube-router.io/service.local": "true"}, ""},
		{"scheduler", map[string]string{"kube-ipvs.io/scheduler": "wlc"}, "scheduler wlc"},
		{"its flags if none are said", map[string]string{"kube-ipvs.io/scheduler": " MH "}, "scheduler mh (mh-fallback,mh-port)"},
		{"one flag", map[string]string{"kube-ipvs.io/scheduler": "mh", "kube-ipvs.io/scheduler-flags": "mh-port"}, "scheduler mh (mh-port)"},
		{"two flags", map[string]string{"kube-ipvs.io/scheduler": "sh", "kube-ipvs.io/scheduler-flags": "sh-port, sh-fallback"}, "scheduler sh (sh-fallback,sh-port)"},
		{"no flags", map[string]string{"kube-ipvs.io/scheduler": "mh", "kube-ipvs.io/scheduler-flags": "none"}, "scheduler mh"},
		{"kube-router's scheduler", map[string]string{"kube-router.io/service.scheduler": "lc"}, "scheduler lc"},
		{"kube-router's flags", map[string]string{"kube-router.io/service.scheduler": "mh", "kube-router.io/service.schedflags": "flag-1,flag-2"}, "scheduler mh (mh-fallback,mh-port)"},
		{"one of them", map[string]string{"kube-router.io/service.scheduler": "mh", "kube-router.io/service.schedflags": "flag-1"}, "scheduler mh (mh-fallback)"},
		{"ours before kube-router's", map[string]string{
			"kube-ipvs.io/scheduler": "sed", "kube-router.io/service.scheduler": "mh", "kube-router.io/service.schedflags": "flag-1",
		}, "scheduler sed"},
		{"kube-router's scheduler with our flags", map[string]string{"kube-router.io/service.scheduler": "sh", "kube-ipvs.io/scheduler-flags": "sh-port"}, "scheduler sh (sh-port)"},
		{"kube-router's flags alone", map[string]string{"kube-router.io/service.schedflags": "flag-1"}, ""},
		{"weight", map[string]string{"kube-ipvs.io/weight": "65535"}, "weight 65535"},
		{"weight 0", map[string]string{"kube-ipvs.io/weight": "0"}, "weight 0"},
		{"one packet", map[string]string{"kube-ipvs.io/one-packet": "true"}, "one packet"},
		{"not one packet", map[string]string{"kube-ipvs.io/one-packet": "false"}, ""},
		{"skip", map[string]string{"kube-ipvs.io/skip": "true"}, "skip"},
		{"drain", map[string]string{"kube-ipvs.io/drain": "90s"}, "drain 1m30s"},
		{"blanks around", map[string]string{"kube-ipvs.io/drain": " 5m\n"}, "drain 5m0s"},
		{"nothing goes on", map[string]string{"kube-ipvs.io/drain": "0"}, "drain 0s"},
		{"the longest drain", map[string]string{"kube-ipvs.io/drain": "60m"}, "drain 1h0m0s"},
		{"slow start", map[string]string{"kube-ipvs.io/slow-start": "30s"}, "slow start 30s"},
		{"no slow start", map[string]string{"kube-ipvs.io/slow-start": "0s"}, ""},
		{"connections", map[string]string{"kube-ipvs.io/max-connections": "1000"}, "limit 1000,0"},
		{"and from where on again", map[string]string{"kube-ipvs.io/max-connections": "1000, 800"}, "limit 1000,800"},
		{"no limit", map[string]string{"kube-ipvs.io/max-connections": "0"}, ""},
		{"tunnel", map[string]string{"kube-ipvs.io/forward": "tunnel"}, "forward tunnel"},
		{"gue", map[string]string{"kube-ipvs.io/forward": "tunnel", "kube-ipvs.io/tunnel": "gue:5555"}, "forward tunnel\ngue 5555"},
		{"the largest port", map[string]string{"kube-ipvs.io/tunnel": "gue:65535"}, "gue 65535"},
		{"the tunnel there always is", map[string]string{"kube-ipvs.io/tunnel": "ipip"}, ""},
		{"direct", map[string]string{"kube-ipvs.io/forward": "dr"}, "forward dr"},
		{"nat", map[string]string{"kube-ipvs.io/forward": "nat"}, ""},
		{"all", map[string]string{
			"kube-ipvs.io/scheduler": "wrr", "kube-ipvs.io/weight": "3", "kube-ipvs.io/one-packet": "true", "kube-ipvs.io/skip": "true", "kube-ipvs.io/drain": "1s",
			"kube-ipvs.io/slow-start": "1m", "kube-ipvs.io/max-connections": "9", "kube-ipvs.io/forward": "dr",
		}, "scheduler wrr\nweight 3\none packet\nskip\ndrain 1s\nslow start 1m0s\nlimit 9,0\nforward dr"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := source.Service(model.FromKube, annotated(tt.annotations))
			if diff := cmp.Diff(tt.want, strings.Join(showPolicy(got.Policy), "\n")); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
			if len(got.BadAnnotations)+len(got.Problems) > 0 {
				t.Errorf("complaints %q, %q", got.BadAnnotations, got.Problems)
			}
		})
	}
}

// TestBadAnnotationsOfAService: each is named with the value in force instead, and costs
// nothing but itself: the drain beside it is read.
func TestBadAnnotationsOfAService(t *testing.T) {
	const (
		weight  = " is not a whole number from 0 to 65535: weights from other sources are used"
		truth   = " is not true or false, taken as false"
		drain   = " is not a duration from 0s to 1h such as 90s or 5m: the setting of the node (--drain) is used"
		slow    = " is not 0s or a duration from 1s to 1h such as 30s: endpoints get their full weight at once"
		limit   = " is not a number of connections, or two such as 1000,800 of which the second is not the larger: there is no limit"
		forward = " is not nat, dr or tunnel, taken as nat"
		tunnel  = " is not ipip, or gue with a UDP port such as gue:5555, taken as ipip"
		unknown = `unknown scheduler `
		names   = `: use one of rr wrr lc wlc lblc lblcr sh dh sed nq mh fo ovf twos: the scheduler of the node is used`
	)
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ key, value, want string }{
		{"scheduler", "round-robin", unknown + `"round-robin"` + names},
		{"scheduler", "rr,wrr", unknown + `"rr,wrr"` + names},
		{"scheduler", "rr wlc", unknown + `"rr wlc"` + names},
		{"scheduler", "none", unknown + `"none"` + names},
		{"scheduler", "ip_vs_rr", unknown + `"ip_vs_rr"` + names},
		{"scheduler", "rr\x00", unknown + `"rr\x00"` + names},
		{"scheduler", "ｒｒ", unknown + `"ｒｒ"` + names},
		{"scheduler", long, unknown + `"` + long[:64] + `"` + names},
		{"scheduler", "", "empty: the scheduler of the node is used; set one of rr wrr lc wlc lblc lblcr sh dh sed nq mh fo ovf twos"},
		{"scheduler", " \t", "empty: the scheduler of the node is used; set one of rr wrr lc wlc lblc lblcr sh dh sed nq mh fo ovf twos"},
		{"scheduler-flags", "sh-port", "it needs kube-ipvs.io/scheduler, the scheduler that the flags are for"},
		{"weight", "", `""` + weight},
		{"weight", "-1", `"-1"` + weight},
		{"weight", "+1", `"+1"` + weight},
		{"weight", "65536", `"65536"` + weight},
		{"weight", "1.5", `"1.5"` + weight},
		{"weight", "1e3", `"1e3"` + weight},
		{"weight", "0x10", `"0x10"` + weight},
		{"weight", "1 000", `"1 000"` + weight},
		{"weight", "1_000", `"1_000"` + weight},
		{"weight", "ten", `"ten"` + weight},
		{"weight", "18446744073709551616", `"18446744073709551616"` + weight},
		{"one-packet", "", `""` + truth},
		{"one-packet", "yes", `"yes"` + truth},
		{"one-packet", "1", `"1"` + truth},
		{"one-packet", "True", `"True"` + truth},
		{"one-packet", "udp", `"udp"` + truth},
		{"skip", "", `""` + truth},
		{"skip", "TRUE", `"TRUE"` + truth},
		{"skip", "on", `"on"` + truth},
		{"skip", "node-1", `"node-1"` + truth},
		{"drain", "", `""` + drain},
		{"drain", "30", `"30"` + drain},
		{"drain", "-1ns", `"-1ns"` + drain},
		{"drain", "1h0m0.000000001s", `"1h0m0.000000001s"` + drain},
		{"drain", "five minutes", `"five minutes"` + drain},
		{"drain", "9999999999h", `"9999999999h"` + drain},
		{"drain", "1\n2", `"1\n2"` + drain},
		{"drain", "forever", `"forever"` + drain},
		{"slow-start", "", `""` + slow},
		{"slow-start", "30", `"30"` + slow},
		{"slow-start", "999ms", `"999ms"` + slow},
		{"slow-start", "61m", `"61m"` + slow},
		{"slow-start", "-30s", `"-30s"` + slow},
		{"slow-start", "true", `"true"` + slow},
		{"max-connections", "", `""` + limit},
		{"max-connections", "-5", `"-5"` + limit},
		{"max-connections", "many", `"many"` + limit},
		{"max-connections", "800,1000", `"800,1000"` + limit},
		{"max-connections", "1000,", `"1000,"` + limit},
		{"max-connections", ",800", `",800"` + limit},
		{"max-connections", "1,2,3", `"1,2,3"` + limit},
		{"max-connections", "1000-800", `"1000-800"` + limit},
		{"max-connections", "2147483648", `"2147483648"` + limit},
		{"forward", "", `""` + forward},
		{"forward", "NAT", `"NAT"` + forward},
		{"forward", "ipip", `"ipip"` + forward},
		{"forward", "gre", `"gre"` + forward},
		{"forward", "direct-return", `"direct-return"` + forward},
		{"tunnel", "", `""` + tunnel},
		{"tunnel", "gue", `"gue"` + tunnel},
		{"tunnel", "gue:", `"gue:"` + tunnel},
		{"tunnel", "gue:0", `"gue:0"` + tunnel},
		{"tunnel", "gue:65536", `"gue:65536"` + tunnel},
		{"tunnel", "gre:5555", `"gre:5555"` + tunnel},
		{"tunnel", "5555", `"5555"` + tunnel},
		{"schedular", "rr", "unknown annotation; those for kube-ipvs.io are scheduler, scheduler-flags, weight, one-packet, drain, skip, slow-start, max-connections, forward, tunnel"},
		{"Weight", "1", "unknown annotation; those for kube-ipvs.io are scheduler, scheduler-flags, weight, one-packet, drain, skip, slow-start, max-connections, forward, tunnel"},
		{"", "x", "unknown annotation; those for kube-ipvs.io are scheduler, scheduler-flags, weight, one-packet, drain, skip, slow-start, max-connections, forward, tunnel"},
	} {
		t.Run(tt.key+"="+tt.value[:min(len(tt.value), 20)], func(t *testing.T) {
			asked := map[string]string{"kube-ipvs.io/drain": "7s", "kube-ipvs.io/" + tt.key: tt.value}
			got := source.Service(model.FromKube, annotated(asked))
			want := []string{"metadata.annotations[kube-ipvs.io/" + tt.key + "]: " + tt.want}
			if diff := cmp.Diff(want, got.BadAnnotations); diff != "" {
				t.Errorf("bad annotations (-want +got):\n%s", diff)
			}
			left := "drain 7s"
			if tt.key == "drain" {
				left = ""
			}
			if diff := cmp.Diff(left, strings.Join(showPolicy(got.Policy), "\n")); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBadFlags: an algorithm whose flags cannot be read has those that it has anyway.
func TestBadFlags(t *testing.T) {
	for _, tt := range []struct{ scheduler, flags, want, why string }{
		{"mh", "mh_port", "mh (mh-fallback,mh-port)", `unknown scheduler flag "mh_port" for scheduler "mh": use mh-fallback or mh-port: mh (mh-fallback,mh-port) is used`},
		{"sh", "mh-port", "sh (sh-fallback)", `unknown scheduler flag "mh-port" for scheduler "sh": use sh-fallback or sh-port: sh (sh-fallback) is used`},
		{"rr", "sh-port", "rr", `unknown scheduler flag "sh-port" for scheduler "rr": it takes none: rr is used`},
		{"sh", "", "sh (sh-fallback)", "empty: sh (sh-fallback) is used; set none for no flags"},
		{"mh", "flag-1", "mh (mh-fallback,mh-port)", `unknown scheduler flag "flag-1" for scheduler "mh": use mh-fallback or mh-port: mh (mh-fallback,mh-port) is used`},
	} {
		got := source.Service(model.FromKube, annotated(map[string]string{"kube-ipvs.io/scheduler": tt.scheduler, "kube-ipvs.io/scheduler-flags": tt.flags}))
		if got.Policy == nil || got.Policy.Scheduler.String() != tt.want {
			t.Errorf("%s with %q: policy %+v, want %s", tt.scheduler, tt.flags, got.Policy, tt.want)
		}
		if diff := cmp.Diff([]string{"metadata.annotations[kube-ipvs.io/scheduler-flags]: " + tt.why}, got.BadAnnotations); diff != "" {
			t.Errorf("%s with %q (-want +got):\n%s", tt.scheduler, tt.flags, diff)
		}
	}
}

// TestWeightsElsewhere: a slice and a Node have a weight and nothing else.
func TestWeightsElsewhere(t *testing.T) {
	meta := func(name string, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}
	}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		want        string // %s is the kind of object, with its article
	}{
		{"none", map[string]string{"example.com/weight": "x"}, ""},
		{"a weight", map[string]string{"kube-ipvs.io/weight": "40"}, "weight 40"},
		{"a bad one", map[string]string{"kube-ipvs.io/weight": "heavy"}, `bad metadata.annotations[kube-ipvs.io/weight]: "heavy" is not a whole number from 0 to 65535: %[2]s`},
		{"what belongs elsewhere", map[string]string{"kube-ipvs.io/scheduler": "rr"}, "bad metadata.annotations[kube-ipvs.io/scheduler]: it is for a Service, not for %[1]s"},
		{"unknown annotation", map[string]string{"kube-ipvs.io/wait": "1"}, "bad metadata.annotations[kube-ipvs.io/wait]: unknown annotation; " +
			"those for kube-ipvs.io are scheduler, scheduler-flags, weight, one-packet, drain, skip, slow-start, max-connections, forward, tunnel"},
	} {
		show := func(weight *uint16, bad []string) string {
			var out []string
			if weight != nil {
				out = append(out, fmt.Sprintf("weight %d", *weight))
			}
			for _, b := range bad {
				out = append(out, "bad "+b)
			}
			return strings.Join(out, "\n")
		}
		said := func(kind, holds string) string {
			if !strings.Contains(tt.want, "%") {
				return tt.want
			}
			return strings.NewReplacer("%[1]s", kind, "%[2]s", holds).Replace(tt.want)
		}
		slice := source.Slice(model.FromKube, &discoveryv1.EndpointSlice{ObjectMeta: meta("web-1", tt.annotations), AddressType: discoveryv1.AddressTypeIPv4})
		if diff := cmp.Diff(said("an EndpointSlice", "that of the Service is used"), show(slice.Weight, slice.BadAnnotations)); diff != "" {
			t.Errorf("%s: slice (-want +got):\n%s", tt.name, diff)
		}
		node := source.Node(&corev1.Node{ObjectMeta: meta("n1", tt.annotations)})
		if diff := cmp.Diff(said("a Node", "that of the EndpointSlice or Service is used"), show(node.Weight, node.BadAnnotations)); diff != "" {
			t.Errorf("%s: node (-want +got):\n%s", tt.name, diff)
		}
	}
}

// FuzzPolicy: a value that is taken from an annotation is within its bounds, and one that
// is not taken is reported.
func FuzzPolicy(f *testing.F) {
	for _, key := range source.Keys() {
		for _, text := range []string{"", "0", "1", "true", "rr", "mh", "none", "sh-port", "30s", "1h", "1h1ns", "9223372036854775808ns", "65535", "65536", "10,5", "5,10", "tunnel", "∞", "\x00", " 1m "} {
			f.Add(key, text)
		}
	}
	f.Add("unknown", "x")
	f.Fuzz(func(t *testing.T, key, text string) {
		got := source.Service(model.FromFile, annotated(map[string]string{"kube-ipvs.io/" + key: text}))
		p := got.Policy
		if p == nil {
			return
		}
		if len(got.BadAnnotations) > 0 {
			t.Errorf("%s=%q: taken as %q, and refused: %q", key, text, showPolicy(p), got.BadAnnotations)
		}
		switch {
		case p.Drain != nil && (*p.Drain < 0 || *p.Drain > time.Hour):
			t.Errorf("%q: drain %s", text, *p.Drain)
		case p.SlowStart != 0 && (p.SlowStart < time.Second || p.SlowStart > time.Hour):
			t.Errorf("%q: slow start %s", text, p.SlowStart)
		case p.Limit.Lower > p.Limit.Upper || p.Limit.Upper > 1<<31-1:
			t.Errorf("%q: limit %v", text, p.Limit)
		}
		if known, has := got.Policy.Scheduler, key == "scheduler"; known.IsZero() == has {
			t.Errorf("%s=%q: scheduler %v", key, text, known)
		}
	})
}

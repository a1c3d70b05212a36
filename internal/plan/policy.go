package plan

import (
	"fmt"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// This file follows the wishes of annotations as far as they can be had, and notes what is
// not followed.

// asked is the policy of the Service; the zero Policy where it asks for nothing, or the
// mode follows none.
func (j *compilation) asked() model.Policy {
	if j.svc.Policy == nil || j.opts.NoPolicy {
		return model.Policy{}
	}
	return *j.svc.Policy
}

// scheduler is the algorithm of the Service's frontends.
func (j *compilation) scheduler() scheduler.Spec {
	if j.opts.NoPolicy {
		return scheduler.Spec{}
	}
	want := j.asked().Scheduler
	if _, refused := j.opts.Host.Refused[want]; want.IsZero() || refused {
		return j.opts.Scheduler
	}
	return want
}

// shape applies the policy to a frontend, but for the scheduler and the weights.
func (j *compilation) shape(f *model.Frontend) {
	p := j.asked()
	f.Drain = j.opts.Drain
	if p.Drain != nil {
		f.Drain = *p.Drain
	}
	f.OnePacket = p.OnePacket && f.Key.Protocol == model.UDP
	if f.Limit = p.Limit; counts(f.Scheduler) {
		f.SlowStart = p.SlowStart
	}
	if f.Forward = j.forward(f); f.Forward == model.ForwardTunnel {
		f.GUE = p.GUE
	}
}

// counts reports whether an algorithm distributes connections in proportion to the weights. Hashing
// algorithms use weights, too, but a changed weight of one backend moves clients of all backends.
// Locality algorithms also use a weight as a number of connections (is_overloaded in
// net/netfilter/ipvs/ip_vs_lblc.c), which must not be multiplied.
func counts(s scheduler.Spec) bool {
	return s.Algorithm().Weight == scheduler.WeightShare && !slices.Contains([]string{"sh", "mh", "lblc", "lblcr"}, s.Name())
}

// weight returns the weight of an endpoint. The annotation of its Node goes before that of
// its slice, and that before the one of the Service.
func (j *compilation) weight(e candidate) uint16 {
	if j.opts.NoPolicy {
		return model.DefaultWeight
	}
	if w, said := j.opts.Host.Weights[e.ep.Node]; said && w.Bad == "" {
		return w.Weight
	}
	if e.slice.Weight != nil {
		return *e.slice.Weight
	}
	if p := j.svc.Policy; p != nil && p.Weight != nil {
		return *p.Weight
	}
	return model.DefaultWeight
}

// badAnnotations returns the annotations without effect. They are those of the Service, its slices
// and the Nodes of its endpoints that cannot be parsed, that need something the kernel lacks, or
// that do not apply here.
func (j *compilation) badAnnotations(frontends []model.Frontend) []string {
	var out notes
	out.add(model.BadAnnotation, j.svc.BadAnnotations...)
	out = append(out, j.rewritten...)
	for i := range j.slices {
		if s := &j.slices[i]; s.Service == j.id {
			for _, bad := range s.BadAnnotations {
				out.addf(model.BadAnnotation, "EndpointSlice %s: %s", s.ID, bad)
			}
			j.badNodes(s, &out)
		}
	}
	if p := j.svc.Policy; p != nil {
		j.withoutEffect(p, frontends, &out)
	}
	return model.NoteTexts(out.sorted())
}

// badNodes names the Nodes of a slice's endpoints whose weight cannot be read.
func (j *compilation) badNodes(s *model.Slice, out *notes) {
	if len(j.opts.Host.Weights) == 0 {
		return
	}
	for i := range s.Endpoints {
		if w := j.opts.Host.Weights[s.Endpoints[i].Node]; w.Bad != "" {
			out.addf(model.BadAnnotation, "Node %s: %s", s.Endpoints[i].Node, w.Bad)
		}
	}
}

// withoutEffect notes the wishes of a policy that are not followed.
func (j *compilation) withoutEffect(p *model.Policy, frontends []model.Frontend, out *notes) {
	if j.opts.NoPolicy {
		if !p.Equal(&model.Policy{Skip: p.Skip}) {
			out.addf(model.BadAnnotation, "%s have no effect: this node serves without IPVS, so each backend gets the same share", annotation("*"))
		}
		return
	}
	if why, refused := j.opts.Host.Refused[p.Scheduler]; refused {
		out.addf(model.BadAnnotation, "%s: %s is not available on this node (%s): %s is used", annotation("scheduler"), p.Scheduler, why, j.opts.Scheduler)
	}
	used := j.scheduler()
	if p.OnePacket && !slices.ContainsFunc(frontends, func(f model.Frontend) bool { return f.OnePacket }) {
		out.addf(model.BadAnnotation, "%s: no port of the Service is UDP: no effect", annotation("one-packet"))
	}
	if p.SlowStart > 0 && !counts(used) {
		out.addf(model.BadAnnotation, "%s: scheduler %s does not count connections by weight: new endpoints get their full share at once", annotation("slow-start"), used.Name())
	}
	if p.Forward != model.ForwardNAT && !slices.ContainsFunc(frontends, func(f model.Frontend) bool { return forwards(f.Kind) }) {
		out.addf(model.BadAnnotation, "%s: the Service has no external address: no effect", annotation("forward"))
	}
	if p.GUE != 0 && p.Forward != model.ForwardTunnel {
		out.addf(model.BadAnnotation, "%s: without %s: tunnel it has no effect", annotation("tunnel"), annotation("forward"))
	}
	if p.Weight != nil && *p.Weight > 0 && used.Algorithm().Weight == scheduler.WeightIgnored {
		out.addf(model.BadAnnotation, "%s: scheduler %s ignores weights other than 0: no effect", annotation("weight"), used.Name())
	}
}

// annotation is how one of ours is named where people read of it.
func annotation(key string) string {
	return fmt.Sprintf("metadata.annotations[kube-ipvs.io/%s]", key)
}

package events

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// API is the part of the API server that a Recorder uses.
type API interface {
	ListServices(ctx context.Context, namespace string, o metav1.ListOptions) (*corev1.ServiceList, error)
	CreateEvent(ctx context.Context, e *eventsv1.Event) error
	// PatchEvent changes an Event by a strategic merge patch.
	PatchEvent(ctx context.Context, namespace, name string, patch []byte) error
}

// Options are the settings of a Recorder. Node is the name of this Node.
type Options struct {
	Node   string
	API    API
	Log    *zap.Logger
	Limits Limits
}

// Recorder sends Events about Services and this Node. A nil Recorder is one that does
// nothing, for an agent without an API server.
type Recorder struct {
	node    string
	api     API
	log     *zap.Logger
	limits  Limits
	history *history
	// written are the Events that may become series: series by words.
	written *cache.LRUExpireCache
	// Queued messages. The Node has its own queue, so that its messages never wait for those of
	// Services.
	services, nodes *queue
	overall         *rate.Limiter
	dropped         atomic.Uint64
}

// New makes a Recorder. Messages that are reported before Run are sent by Run.
func New(o Options) *Recorder {
	limits := o.Limits.withDefaults()
	return &Recorder{
		node:     o.Node,
		api:      o.API,
		log:      o.Log.Named("events"),
		limits:   limits,
		history:  newHistory(limits),
		written:  cache.NewLRUExpireCache(limits.Subjects),
		services: newQueue(limits.Queue),
		nodes:    newQueue(limits.Queue),
		overall:  rate.NewLimiter(rate.Every(limits.Every), limits.Burst),
	}
}

// Run sends Events until ctx ends, and returns nil at once then: waiting Events are not sent.
// It may run once.
func (r *Recorder) Run(ctx context.Context) error {
	if r == nil {
		<-ctx.Done()
		return nil
	}
	var senders sync.WaitGroup
	senders.Go(func() { r.sendNodes(ctx) })
	senders.Go(func() { r.sendServices(ctx) })
	senders.Wait()
	return nil
}

// Service queues an Event about a Service, in at most 1,024 bytes of text; more is cut off. It never
// blocks and may be called by any goroutine. A Service that is no object of the API is skipped.
func (r *Recorder) Service(id model.ServiceID, kind Kind, text string) {
	if r == nil {
		return
	}
	if id.Origin != model.FromKube {
		r.log.Debug("event not sent, the object is not in the API server", zap.Stringer("service", id), zap.String("reason", kind.Reason))
		return
	}
	r.say(r.services, subject{object{"Service", id.Namespace, id.Name}, kind}, text)
}

// Node queues an Event about the Node that this agent runs on, like Service.
func (r *Recorder) Node(kind Kind, text string) {
	if r == nil {
		return
	}
	r.say(r.nodes, subject{object{kind: "Node", name: r.node}, kind}, text)
}

// Dropped is how many messages were given up: too many waited, one subject had more than its share,
// the API server refused them or was away for too long. Repetitions within Limits.Repeat, and
// messages about deleted Services, do not count.
func (r *Recorder) Dropped() uint64 {
	if r == nil {
		return 0
	}
	return r.dropped.Load()
}

func (r *Recorder) say(q *queue, s subject, text string) {
	m := message{s, cut(text, maxNote), time.Now()}
	if r.history.repeats(m) {
		return
	}
	if q.push(m) {
		r.dropped.Add(1)
	}
}

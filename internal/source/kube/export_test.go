package kube

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/watchlist"
)

// Bound has lists and events of a source that does not run yet be no longer than so many
// bytes.
func (s *Source) Bound(bytes int64) { s.maxListBytes, s.maxEventBytes = bytes, bytes }

// HastenedPause is the shortest pause between two attempts of a Source after Hasten.
const HastenedPause = firstPause / hastened

// hastened is the whole of which a wait after Hasten is one part.
const hastened = 10

// Hasten shortens the waits of a Source that does not run yet to a tenth, but for a head start
// that is a longer one already.
func (s *Source) Hasten() {
	if s.waits.priorityList == priorityListLimit {
		s.waits.priorityList /= hastened
	}
	s.waits.firstPause, s.waits.reconnectJitter = HastenedPause, reconnectJitter/hastened
}

// AwaitFirst has the large lists of a Source that does not run yet wait for what comes first,
// however slow the machine is.
func (s *Source) AwaitFirst() { s.waits.priorityList = time.Hour }

// Of makes an API of a clientset of client-go, for tests with its fake.
func Of(c kubernetes.Interface) API { return clientset{c} }

type clientset struct{ kubernetes.Interface }

func (c clientset) Services(namespace string) Resource[*corev1.ServiceList] {
	return c.CoreV1().Services(namespace)
}

func (c clientset) EndpointSlices(namespace string) Resource[*discoveryv1.EndpointSliceList] {
	return c.DiscoveryV1().EndpointSlices(namespace)
}

func (c clientset) Nodes() Resource[*corev1.NodeList] { return c.CoreV1().Nodes() }

// IsWatchListSemanticsUnSupported repeats the answer of the fake.
func (c clientset) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(c.Interface)
}

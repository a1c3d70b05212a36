package vservertest

import (
	"context"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Client has the methods of Handle and Fake that their callers use.
type Client interface {
	ListServers(context.Context) (map[vserver.ServerKey]vserver.Server, error)
	ListDestinations(context.Context, vserver.ServerKey) (map[vserver.DestinationKey]vserver.Destination, error)
	List(context.Context) (map[vserver.ServerKey]vserver.Server, map[vserver.DestinationKey]vserver.Destination, error)
	GetServer(context.Context, vserver.ServerKey) (vserver.Server, error)
	GetServers(context.Context, []vserver.ServerKey) (map[vserver.ServerKey]vserver.Server, error)
	WriteServers(context.Context, []vserver.ServerChange) []error
	WriteDestinations(context.Context, []vserver.DestinationChange) []error
	Probe(ctx context.Context, scheduler string) error
	ProbeGUE(context.Context) error
	Timeouts(context.Context) (vserver.Timeouts, error)
	SetTimeouts(context.Context, vserver.Timeouts) error
	Count(map[vserver.DestinationKey]struct{}) vserver.Counting
	BeginSurvey(context.Context) error
	Survey(context.Context, func(vserver.ServerKey, vserver.Digest)) (done bool, err error)
	ListTraffic(context.Context) (map[vserver.ServerKey]vserver.ServerTraffic, error)
	ListDestinationTraffic(context.Context, vserver.ServerKey) (map[vserver.DestinationKey]vserver.DestinationTraffic, error)
	ListLoads(context.Context) (map[vserver.ServerKey]vserver.Load, error)
	Counters() vserver.Counters
	Close()
}

// Subject is one empty IPVS table under test and ways around the client.
type Subject struct {
	Client Client
	// Schedulers that exist here.
	Schedulers []string
	// AddMark makes a server for a firewall mark, as another program would. Nil
	// where the subject has no such thing.
	AddMark func(t *testing.T, mark uint32)
	// Connect makes one TCP connection to the only destination of a server that
	// takes any, both on loopback addresses; the returned function ends it.
	Connect func(t *testing.T, to vserver.DestinationKey) (end func())
	// Refuses reports whether a TCP client of a server gets no connection, although its only
	// destination listens, both on loopback addresses.
	Refuses func(t *testing.T, to vserver.DestinationKey) bool
	// ReadsTunnels is the one of Readers that knows kinds of tunnels.
	ReadsTunnels string
	// Readers print the table as `ipvsadm -Sn` does, by other code than ours.
	Readers map[string]func(t *testing.T) string
	// PassesOver: a survey may miss servers, for the list is one of several namespaces, and
	// those of earlier tests take their time to go.
	PassesOver bool
}

// Contract runs the behaviours that callers of this package rely on, each
// against a subject of its own.
func Contract(t *testing.T, open func(t *testing.T) Subject) {
	cases := []struct {
		name string
		run  func(*testing.T, Subject)
	}{
		{"every scheduler is stored", everyScheduler},
		{"flags and persistence are stored", flagsAndPersistence},
		{"families and protocols are kept apart", familiesAndProtocols},
		{"a server changes in place", serverChangesInPlace},
		{"a staged server is filled and switched on", stagedServer},
		{"staging spares what is there", stagingSparesServer},
		{"a weight changes in place", weightChangesInPlace},
		{"deleting a server takes its destinations", deleteTakesDestinations},
		{"server writes converge", serverWritesConverge},
		{"destination writes converge", destinationWritesConverge},
		{"a destination needs its server", destinationNeedsServer},
		{"an unknown scheduler is unsupported", unknownScheduler},
		{"rows that cannot be expressed are not sent", invalidRows},
		{"bad rows do not stop a batch", badRowsInBatch},
		{"a firewall mark server is foreign", markIsForeign},
		{"single reads", singleReads},
		{"a missing server has no destinations", missingServerHasNone},
		{"connections are counted", connectionsAreCounted},
		{"what is not there has no count", absentHasNoCount},
		{"traffic is counted", trafficIsCounted},
		{"loads are added up", loadsAreAddedUp},
		{"a survey shows all servers", surveyShowsAll},
		{"a survey tells what changed", surveyTellsChanges},
		{"a survey comes in pieces", surveyComesInPieces},
		{"a survey can begin again", surveyBeginsAgain},
		{"a probe leaves nothing", probeLeavesNothing},
		{"kinds of tunnels", kindsOfTunnels},
		{"timeouts", timeouts},
		{"a change costs one message", changeCostsOneMessage},
		{"an ended context writes nothing", endedContext},
		{"independent readers agree", readersAgree},
		{"a large table is read whole", largeTable},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(s.Client.Close)
			c.run(t, s)
		})
	}
}

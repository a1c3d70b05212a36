package kube

import "time"

// How long an API server may be silent. HTTP/2 pings notice a connection that died
// and a process that hangs within 45 s; these hold where there are none, and where
// the connection lives and nobody speaks.
const (
	// listLimit ends a list. The server itself gives up after one minute unless
	// its --request-timeout says otherwise.
	listLimit = 2 * time.Minute
	// silence ends a watch without an event and without a bookmark, of which there
	// is one a minute. It is the shortest life that client-go asks for a watch, so
	// that a server without bookmarks sees hardly more requests. The list that
	// follows is not waste: a server that was restored from a backup says nothing
	// to a watch from its own future, for ever.
	silence = 5 * time.Minute
	// brief is the life of a watch that somebody between us and the server ended
	// (client-go draws the line at the same second).
	brief = time.Second
)

// headStart is how long the large lists wait for that of the Nodes, which is small and
// without which nothing can be served, for the API server's own Service, and for the agent
// itself; beside two large ones these would come late. A server that is well needs a part of
// it for the 10 MB of DefaultManyNodes, and where it is slow, or refuses, the start is so much
// longer.
const headStart = 2 * time.Second

// The pauses between two attempts are each up to twice as long, at random: with ten
// thousand agents a server that comes back after a while sees 300 of them a second at
// most, for each kind.
const (
	firstPause   = 800 * time.Millisecond
	longestPause = 30 * time.Second
	pauses       = 6 // until the longest
	// calm is how long a watch has to live for the next pause to be a short one.
	calm = 2 * time.Minute
)

// scattered is over what time agents begin their watches again that a server ended all at
// once, as it does when it stops. A change of that moment is served so much later.
const scattered = time.Second

// streamTries is how many streamed lists in a row may break off before a plain list is
// asked for. Two of them can be the same server that goes away twice, as in an update; a
// third is hardly.
const streamTries = 3

// What is read of an answer before something came of it. The limit of an event is that
// of client-go for those in protobuf; etcd takes objects of 1.5 MB at most. Lists are 50 MB
// for 10,000 slices of 100 endpoints, twice that for 5,000 Nodes or in JSON.
const (
	mostEvent = 16 << 20
	mostList  = 512 << 20
)

// remind is how often the log may repeat what is wrong.
const remind = 5 * time.Minute

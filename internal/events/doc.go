// Package events tells users, through Events of the API group events.k8s.io/v1, what
// this node cannot do for a Service and what happens to the agent itself.
//
//	agent ─► Service, Node ─► queue ─► limits ─► UID ─► series? ─► API
//	         never block      bounded                             patient
//
// It knows the words of model and the events API. It does not know why something is
// said: the agent decides that, and repeats it as often as it likes.
//
// An Event is the view of one node. Where all nodes meet the same trouble, each of them reports it,
// told apart by reportingInstance. The limits bound the cost of 5,000 agents together for an API
// server:
//
//   - the same words about the same object are not repeated within ten minutes;
//   - an object gets five Events of a kind, then one in five minutes;
//   - all Services together get ten Events, then one in ten seconds: at worst 50,000 Events
//     from 5,000 nodes, then 500 a second. Events about the Node do not wait for these.
//
// A repeated message becomes a series of its Event while the API keeps that Event, an hour: kubectl
// shows the number of repetitions. The broadcaster of client-go also numbers series, but is not
// used. It links every type of the API into the program and names the instance after the host name
// instead of the Node. It counts a different text as a repetition and deletes an Event after six
// minutes. It gives up after two minutes without an API server, and at once if the server is
// overloaded.
//
// The law it keeps: telling never delays doing. Nothing blocks the caller, memory is
// bounded whatever is said and however long the API is away, and what could not be said
// within an hour is dropped and counted.
package events

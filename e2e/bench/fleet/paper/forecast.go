package paper

// Cost is what one agent costs an API server, as measured with so many Services.
type Cost struct {
	Services float64 `json:"services"`
	// ListBytes go from the server to an agent that starts, ListCPU is the server's time for it in seconds.
	ListBytes float64 `json:"listBytes"`
	ListCPU   float64 `json:"listCPU"`
	// EventBytes go to each agent for each change, EventCPU is the server's time for that in seconds; ChangeCPU is its time for the
	// change itself, however many agents there are.
	EventBytes float64 `json:"eventBytes"`
	EventCPU   float64 `json:"eventCPU"`
	ChangeCPU  float64 `json:"changeCPU"`
	// IdleBytes a second go to an agent while nothing changes.
	IdleBytes float64 `json:"idleBytes"`
	// ServerMemory is what the server's RSS grows by for an agent, in bytes.
	ServerMemory float64 `json:"serverMemory"`
}

// fields are all that depend on the number of Services.
func (c *Cost) fields() []*float64 {
	return []*float64{&c.ListBytes, &c.ListCPU, &c.EventBytes, &c.EventCPU, &c.ChangeCPU, &c.IdleBytes, &c.ServerMemory}
}

// Scale is the cost with another number of Services: on a line through what was measured, never below nothing. A single measurement is
// taken for lists as a share (twice the Services, twice the list), and as it is for the rest.
func Scale(measured []Cost, services float64) Cost {
	if len(measured) == 0 {
		return Cost{Services: services}
	}
	if len(measured) == 1 {
		c := measured[0]
		if c.Services > 0 {
			c.ListBytes, c.ListCPU = c.ListBytes*services/c.Services, c.ListCPU*services/c.Services
		}
		c.Services = services
		return c
	}
	out := Cost{Services: services}
	for i, to := range out.fields() {
		points := make([]Point, len(measured))
		for n := range measured {
			points[n] = Point{X: measured[n].Services, Y: *measured[n].fields()[i]}
		}
		*to = max(0, Fit(points).At(services))
	}
	return out
}

// Forecast is what a fleet costs an API server.
type Forecast struct {
	Services float64 `json:"services"`
	Agents   float64 `json:"agents"`
	Rate     float64 `json:"rate"` // changes a second
	// Events and EventBytes are sent each second, and EventCores are busy with it, writes of the changes included.
	Events     float64 `json:"events"`
	EventBytes float64 `json:"eventBytes"`
	EventCores float64 `json:"eventCores"`
	IdleBytes  float64 `json:"idleBytes"` // each second
	// StormBytes and StormCPU (seconds) are those of all agents that list once.
	StormBytes float64 `json:"stormBytes"`
	StormCPU   float64 `json:"stormCPU"`
	Memory     float64 `json:"memory"` // of the server, for its clients, in bytes
}

// At is the forecast for a number of agents and changes a second: every term is the measured one times these.
func (c Cost) At(agents, rate float64) Forecast {
	events := agents * rate
	return Forecast{
		Services: c.Services, Agents: agents, Rate: rate,
		Events:     events,
		EventBytes: events * c.EventBytes,
		EventCores: rate * (c.ChangeCPU + agents*c.EventCPU),
		IdleBytes:  agents * c.IdleBytes,
		StormBytes: agents * c.ListBytes,
		StormCPU:   agents * c.ListCPU,
		Memory:     agents * c.ServerMemory,
	}
}

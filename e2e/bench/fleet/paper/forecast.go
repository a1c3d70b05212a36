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
}

// Scale is the cost with another number of Services. Lists are on a line through what was measured, never below nothing; a single
// measurement is taken as a share (twice the Services, twice the list). The rest does not depend on the number of Services, and is the mean.
func Scale(measured []Cost, services float64) Cost {
	out := Cost{Services: services}
	var bytes, cpu []Point
	for _, c := range measured {
		bytes, cpu = append(bytes, Point{c.Services, c.ListBytes}), append(cpu, Point{c.Services, c.ListCPU})
		n := float64(len(measured))
		out.EventBytes += c.EventBytes / n
		out.EventCPU += c.EventCPU / n
		out.ChangeCPU += c.ChangeCPU / n
		out.IdleBytes += c.IdleBytes / n
	}
	if len(measured) == 1 {
		bytes, cpu = append(bytes, Point{}), append(cpu, Point{})
	}
	out.ListBytes, out.ListCPU = max(0, Fit(bytes).At(services)), max(0, Fit(cpu).At(services))
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
	}
}

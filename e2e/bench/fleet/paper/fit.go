// Package paper is the arithmetic behind a fleet of agents: lines through measurements, what they come to for thousands of agents, and
// histograms in text. It knows numbers only.
package paper

// Point is one measurement: y at x.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Line is y = Base + Each·x.
type Line struct {
	Base float64 `json:"base"`
	Each float64 `json:"each"`
	// R2 is the share of the variance of y that the line explains (the coefficient of determination): 1 is a perfect line. It says
	// nothing where Points is 2.
	R2     float64 `json:"r2"`
	Points int     `json:"points"`
}

// At is y at x.
func (l Line) At(x float64) float64 { return l.Base + l.Each*x }

// Fit is the line of least squares. Where all x are the same it is level, at the mean.
func Fit(points []Point) Line {
	n := float64(len(points))
	if n == 0 {
		return Line{}
	}
	var meanX, meanY float64
	for _, p := range points {
		meanX += p.X / n
		meanY += p.Y / n
	}
	var xx, xy, yy float64
	for _, p := range points {
		dx, dy := p.X-meanX, p.Y-meanY
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	l := Line{Base: meanY, R2: 1, Points: len(points)}
	if xx > 0 {
		l.Each = xy / xx
		l.Base = meanY - l.Each*meanX
	}
	if yy > 0 {
		var left float64
		for _, p := range points {
			d := p.Y - l.At(p.X)
			left += d * d
		}
		l.R2 = 1 - left/yy
	}
	return l
}

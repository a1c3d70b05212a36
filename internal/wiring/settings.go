package wiring

import "github.com/kube-ipvs/kube-ipvs/internal/config"

// Settings returns the settings that are in force.
type Settings func() config.Config

// Static returns settings that never change.
func Static(c config.Config) Settings { return func() config.Config { return c } }

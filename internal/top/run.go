package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Run shows the Screen on the terminal until a person quits or ctx ends.
func Run(ctx context.Context, from *Source, start Screen) error {
	return run(ctx, from, start)
}

func run(ctx context.Context, from *Source, start Screen, more ...tea.ProgramOption) error {
	_, err := tea.NewProgram(terminal{ctx: ctx, from: from, screen: start}, append(more, tea.WithContext(ctx))...).Run()
	return err
}

// terminal carries messages of the terminal library to the Screen and back. Samples are
// taken one at a time: the next one is due when the one before was shown.
type terminal struct {
	ctx    context.Context //nolint:containedctx // the library calls back without one
	from   *Source
	screen Screen
}

type (
	due   struct{}
	taken struct {
		sample Sample
		err    error
	}
)

// Init implements tea.Model.
func (t terminal) Init() tea.Cmd { return t.take() }

func (t terminal) take() tea.Cmd {
	ask := t.screen.Asks()
	return func() tea.Msg {
		s, err := t.from.Take(t.ctx, ask)
		return taken{s, err}
	}
}

func (t terminal) wait() tea.Cmd {
	return tea.Tick(t.screen.Every, func(time.Time) tea.Msg { return due{} })
}

// Update implements tea.Model.
func (t terminal) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		t.screen = t.screen.Resized(msg.Width, msg.Height)
	case tea.KeyPressMsg:
		var act Action
		if t.screen, act = t.screen.Key(msg.String()); act == Quit {
			return t, tea.Quit
		}
	case taken:
		t.screen = t.screen.Sampled(msg.sample, msg.err)
		return t, t.wait()
	case due:
		if t.screen.Paused() {
			return t, t.wait()
		}
		return t, t.take()
	}
	return t, nil
}

// View implements tea.Model.
func (t terminal) View() tea.View {
	v := tea.NewView(t.screen.View())
	v.AltScreen = true
	return v
}

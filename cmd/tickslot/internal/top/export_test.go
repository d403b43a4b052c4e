package top

import (
	"context"

	tea "charm.land/bubbletea/v2"
)

// NewModel returns the model that Run runs.
func NewModel(ctx context.Context, o Options) tea.Model { return newModel(ctx, o) }

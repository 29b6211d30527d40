package report

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"regexp"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// figure is a plot with its caption.
type figure struct {
	Wide    template.HTML
	Narrow  template.HTML // for phones; empty: Wide is readable there too
	Heading string        // above it
	Caption string
}

// The widths of figures in pixels: for the page, for one of two side by side, and for a phone.
const (
	pageWidth  = 1000
	halfWidth  = 500
	phoneWidth = 370
)

// fontStyle matches gonum's font of a text. The page sets the font instead, except for bold.
var fontStyle = regexp.MustCompile(`font-family:[^;]*;font-variant:[^;]*;font-weight:([^;]*);font-style:[^;"]*;`)

// render makes an SVG that is as wide as the space it gets. Without a title it is decoration.
func render(width, height vg.Length, title string, paint func(draw.Canvas)) (template.HTML, error) {
	canvas := vgsvg.New(width, height)
	paint(draw.New(canvas))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return "", fmt.Errorf("draw %q: %w", title, err)
	}
	_, drawing, _ := strings.Cut(out.String(), "<svg")
	_, drawing, found := strings.Cut(drawing, ">")
	if !found {
		return "", fmt.Errorf("draw %q: what gonum has written is not an SVG", title)
	}
	drawing = fontStyle.ReplaceAllStringFunc(drawing, func(style string) string {
		if fontStyle.FindStringSubmatch(style)[1] == "bold" {
			return "font-weight:bold;"
		}
		return ""
	})
	meaning := `aria-hidden="true"`
	if title != "" {
		meaning = fmt.Sprintf(`role="img" aria-label="%s"`, html.EscapeString(title))
	}
	head := fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" %s>`, width.Points(), height.Points(), meaning)
	// nolint:gosec // gonum has escaped the texts, and we the title
	return template.HTML(head + strings.TrimSpace(drawing)), nil
}

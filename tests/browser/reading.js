// What a person would trip over on a page: each function returns the texts that are not as they should be.

// The texts that can be seen, each with its element and the rectangles of its lines.
const texts = () => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("svg, style, script, .hidden")) continue;
    if (!element.checkVisibility() || getComputedStyle(element).clipPath !== "none") continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const lines = [...range.getClientRects()].filter(line => line.width > 1 && line.height > 1);
    if (lines.length) found.push({ node, text: node.data.trim().replace(/\s+/g, " "), element, lines });
  }
  return found;
};

// Lines of different texts that lie upon each other by more than a hair; the height that a font leaves free does not count.
const overlapping = () => {
  const lines = texts().flatMap(({ node, text, lines }) => lines.map(line => ({ node, text, line })));
  lines.sort((a, b) => a.line.top - b.line.top);
  const found = new Set();
  lines.forEach((a, place) => {
    for (let next = place + 1; next < lines.length && lines[next].line.top < a.line.bottom - 4; next++) {
      const b = lines[next];
      const wide = Math.min(a.line.right, b.line.right) - Math.max(a.line.left, b.line.left);
      if (a.node !== b.node && wide > 1.5) found.add(`${a.text} / ${b.text}`);
    }
  });
  return [...found];
};

// Texts that leave the window or the box that is drawn around them, and the page itself if it can be scrolled sideways.
const overflowing = () => {
  const found = texts()
    .filter(({ element, lines }) => {
      const box = (element.closest(".table, .figures div, .problem, li, section, header") ?? document.body).getBoundingClientRect();
      return lines.some(line => line.left < Math.max(0, box.left) - 1 || line.right > Math.min(innerWidth, box.right) + 1);
    })
    .map(({ text }) => text);
  const page = document.documentElement;
  return page.scrollWidth > page.clientWidth && !found.length ? ["the page"] : found;
};

const numbers = color => (color.match(/[\d.]+/g) ?? []).map(Number);

const luminance = color => {
  const [red, green, blue] = numbers(color).map(part => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};

const behind = element => {
  for (let at = element; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor;
    if (numbers(color)[3] !== 0) return color;
  }
  return "rgb(255, 255, 255)";
};

// Texts whose contrast is below what WCAG 2 asks for (AA, text of normal size).
const faint = () =>
  texts()
    .filter(({ element }) => {
      const [light, dark] = [getComputedStyle(element).color, behind(element)].map(luminance).sort((a, b) => b - a);
      return (light + 0.05) / (dark + 0.05) < 4.5;
    })
    .map(({ text }) => text);

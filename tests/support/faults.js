// What is wrong in a page as it stands: each a check's name, the element and the circumstances.
() => {
  const found = new Set(), root = document.documentElement;
  const article = document.querySelector('article, main') ?? document.body;
  const above = element => element && element !== root ? [element, ...above(element.parentElement)] : [];
  const path = element => above(element).filter(e => e !== document.body).slice(0, 4).reverse()
    .map(e => e.tagName.toLowerCase() + (e.id ? '#' + e.id : [...e.classList].map(c => '.' + c).join(''))).join(' > ');
  const say = (check, element, more = '') => found.add(`${check}: ${path(element)} ${more}`.trim());
  const seen = element => element.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const right = element => element.getBoundingClientRect().right;

  // No TeX is left in the text, and every formula has its glyphs.
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const {nodeValue: text, parentElement: parent} = texts.currentNode;
    const tex = text.match(/\\[a-zA-Z]{2,}|\\[()[\]]|\$\$/);
    if (tex && !parent.closest('code, pre, kbd, script, style, noscript, textarea, template') && seen(parent))
      say('TeX left', parent, JSON.stringify(text.slice(Math.max(0, tex.index - 20), tex.index + 40)));
  }
  for (const e of document.querySelectorAll('mjx-merror, merror, [data-mml-node="merror"]')) say('formula in error', e);
  for (const e of document.querySelectorAll('span.math, div.math'))
    if (!e.closest('mjx-container') && !e.querySelector('mjx-container')) say('formula not typeset', e);
  for (const e of document.querySelectorAll('mjx-container')) {
    const width = e.querySelector('svg')?.getBoundingClientRect().width ?? 0;
    if (!e.querySelector('svg') || (seen(e) && e.textContent.trim() && !(width > 0))) say('empty formula', e);
  }
  for (const e of document.querySelectorAll('svg use')) {
    const target = e.getAttribute('href') ?? e.getAttribute('xlink:href') ?? '';
    if (!target.startsWith('#') || !document.getElementById(target.slice(1))) say('glyph not there', e, target);
  }

  // The page is no wider than the window; what is wider than its column scrolls there, and is not cut off.
  if (root.scrollWidth > innerWidth) {
    const holds = e => e !== document.body && getComputedStyle(e).overflowX !== 'visible';
    const out = [...document.body.querySelectorAll('*')]
      .find(e => seen(e) && right(e) > innerWidth + 0.5 && !above(e.parentElement).some(holds));
    say('page too wide', out ?? root, `${root.scrollWidth} of ${innerWidth}`);
  }
  for (const e of article.querySelectorAll('mjx-container, table, pre, img, svg')) {
    if (!seen(e) || e.parentElement.closest('mjx-container, svg, pre, button, a')) continue;
    for (const a of above(e)) {
      const edge = a.getBoundingClientRect().left + a.clientLeft + a.clientWidth, way = getComputedStyle(a).overflowX;
      if (/auto|scroll/.test(way)) break;
      const cuts = a !== e && (/hidden|clip/.test(way) || a === article) && right(e) > edge + 2;
      if (cuts) say('cut off', e, `by ${path(a)}`);
      if (cuts || a === article) break;
    }
  }

  // Pictures say what they show.
  for (const e of document.querySelectorAll('img')) if (!e.alt.trim()) say('no alternative text', e, e.src.slice(-60));
  for (const e of article.querySelectorAll('svg')) {
    if (e.closest('mjx-container, button, [aria-hidden="true"]') || e.parentElement.closest('svg')) continue;
    const labels = (e.getAttribute('aria-labelledby') ?? '').split(' ').map(id => document.getElementById(id));
    const name = e.getAttribute('aria-label') ?? labels.map(l => l?.textContent).join('');
    if (e.getAttribute('role') !== 'img' || !name.trim()) say('figure without a name', e);
  }

  // Formulas and the lettering of inline figures, which axe-core does not read, stand out from what lies behind them.
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = rgb => rgb.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => [...above(element), root].map(a => rgba(getComputedStyle(a).backgroundColor))
    .find(colour => colour[3] > 250) ?? [255, 255, 255];
  for (const e of document.querySelectorAll('mjx-container > svg, mjx-container svg [fill], article svg text')) {
    const style = getComputedStyle(e), colour = e.matches('svg') ? style.color : style.fill;
    const shaded = e.matches('text') && e.closest('svg').querySelector('image');
    if (!e.checkVisibility() || shaded || colour === 'none') continue;
    const [a, b] = [light(rgba(colour)), light(behind(e))].sort((x, y) => x - y), ratio = (b + 0.05) / (a + 0.05);
    if (ratio < 4.5) found.add(`faint: ${colour}, contrast ${ratio.toFixed(2)}, in ${e.closest('[id]')?.id}`);
  }
  return [...found];
}

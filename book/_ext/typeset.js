// A typesetter for the book's extension: one JSON request a line, one JSON answer a line.
//   {"tex": "G_i(x)", "display": false} -> {"html": "<mjx-container …>"}
//   {"glyphs": ["I-1D43A", …]}          -> {"html": "<path id=… d=…>…"}
// Called as: node typeset.js FOLDER-OF-MATHJAX MACROS-AS-JSON
const [folder, macros] = process.argv.slice(2);

// What a page can do without: names of XML, ids in full, and marks that only MathJax in a browser would read.
const lean = (html) =>
  html
    .replace(/ xmlns(:xlink)?="[^"]*"/g, "")
    .replace(/xlink:href="#MJX-TEX-/g, 'href="#')
    .replace(/ (data-c|data-mjx-texclass|role|focusable|unselectable|stroke-width)="[^"]*"/g, "")
    .replace(/ style="position: relative;"/g, "")
    .replace(/ class="MathJax" jax="SVG"/g, "");

require(`${folder}/node-main.js`)
  .init({
    loader: { load: ["input/tex-full", "output/svg", "adaptors/liteDOM", "a11y/assistive-mml"] },
    tex: { packages: { "[-]": ["noundefined"] }, macros: JSON.parse(macros) }, // an unknown macro is an error
    svg: { fontCache: "global" },
  })
  .then((MathJax) => {
    const { adaptor, document } = MathJax.startup;
    const typeset = ({ tex, display }) => lean(adaptor.outerHTML(MathJax.tex2svg(tex, { display })));
    const glyphs = (ids) =>
      adaptor
        .childNodes(document.outputJax.fontCache.getCache())
        .map((path) => adaptor.outerHTML(path).replace("MJX-TEX-", ""))
        .filter((path) => ids.includes(path.match(/id="([^"]*)"/)[1]))
        .join("");
    const answer = (request) => (request.glyphs ? glyphs(request.glyphs) : typeset(request));
    require("readline")
      .createInterface({ input: process.stdin })
      .on("line", (line) => process.stdout.write(JSON.stringify({ html: answer(JSON.parse(line)) }) + "\n"));
  });

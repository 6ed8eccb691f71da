import ts from 'typescript';

const { SyntaxKind: K } = ts;
const bounds = { '<': '<=', '<=': '<', '>': '>=', '>=': '>', '+': '-', '-': '+' };
const equalities = new Set(['===', '!==', '==', '!=']);
const sqlWord = / FOR (?:UPDATE|KEY SHARE)\b|\bAND\b|\bOR\b|\bNOT EXISTS\b/g;
const sqlOther = { AND: 'OR', OR: 'AND', 'NOT EXISTS': 'EXISTS' };

/**
 * Adds every mutant to a file's text. `_M(n)` is true in the process that runs mutant n, so one
 * build contains all mutants.
 * @param {number} first the number of the first mutant
 * @returns the text, whose line numbers are unchanged, and the mutants in order of their numbers
 */
export function instrument(path, text, first = 0) {
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const edits = [];
  const mutants = [];

  const mutant = (node, kind, at = node.getStart()) => {
    const { line, character } = source.getLineAndCharacterOfPosition(at);
    const id = `${path}:${line + 1}:${character + 1}:${kind}`;
    mutants.push({ id, path, line: line + 1, kind, text: node.getText().split('\n')[0].trim().slice(0, 80) });
    return first + mutants.length - 1;
  };
  const wrap = (node, before, after) =>
    edits.push(
      { at: node.getStart(), order: node.getEnd(), text: before },
      { at: node.getEnd(), order: -node.getStart(), text: after },
    );
  // Evaluates the wrapped condition anyway, for its side effects.
  const condition = (node) => {
    wrap(node, `_M.either(${mutant(node, 'true')}, ${mutant(node, 'false')}, (`, '))');
  };
  const negation = (node) => wrap(node, `(_M(${mutant(node, 'not')}) !== (`, '))');
  const removal = (node, kind) => wrap(node, `{ if (!_M(${mutant(node, kind)})) `, ' }');

  const binary = (node) => {
    const operator = node.operatorToken.getText();
    const { left, right } = node;
    if (operator === '&&' || operator === '||') {
      for (const side of [left, right]) {
        const n = mutant(side, 'dropped');
        if (operator === '&&') wrap(side, `(_M(${n}) || (`, '))');
        else wrap(side, `(!_M(${n}) && (`, '))');
      }
    } else if (operator === '??') {
      wrap(left, `(_M(${mutant(left, 'fallback')}) ? undefined : (`, '))');
    } else if (equalities.has(operator)) {
      if (!isCondition(node)) negation(node);
    } else if (operator in bounds && ![left, right].some(isText)) {
      const n = mutant(node, bounds[operator], node.operatorToken.getStart());
      wrap(node, `_M.operate(${n}, '${operator}', '${bounds[operator]}', `, ')');
      edits.push({
        at: node.operatorToken.getStart(),
        end: node.operatorToken.getEnd(),
        order: 0,
        text: ',',
      });
    }
  };

  const returned = (node) => {
    if (
      node === undefined ||
      isTruth(node) ||
      isMessage(node) ||
      (node.kind === K.Identifier && node.text === 'undefined')
    )
      return;
    wrap(node, `(_M(${mutant(node, 'undefined')}) ? undefined : (`, '))');
  };

  const template = (node) => {
    const start = node.getStart();
    for (const found of node.getText().matchAll(sqlWord)) {
      const at = start + found.index;
      const n = mutant(node, `sql ${found[0].trim()}`, at);
      const other = sqlOther[found[0]] ?? '';
      edits.push({
        at,
        end: at + found[0].length,
        order: 0,
        text: `\${_M(${n}) ? '${other}' : '${found[0]}'}`,
      });
    }
  };

  const visit = (node) => {
    if (ts.isTypeNode(node) || ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return;
    if (ts.isImportDeclaration(node) || isMessage(node) || isNote(node)) return;
    if (isCondition(node)) condition(node);
    else if (node.kind === K.TrueKeyword || node.kind === K.FalseKeyword) negation(node);
    else if (ts.isPrefixUnaryExpression(node) && node.operator === K.ExclamationToken) {
      if (!isCondition(node)) negation(node);
    }
    if (ts.isBinaryExpression(node)) binary(node);
    if (ts.isThrowStatement(node)) removal(node, 'no throw');
    if (ts.isExpressionStatement(node) && isRemovable(node.expression)) removal(node, 'no call');
    if (ts.isReturnStatement(node)) returned(node.expression);
    if (ts.isArrowFunction(node) && !ts.isBlock(node.body) && !isSignature(node)) returned(node.body);
    if (isTemplate(node) && !ts.isTaggedTemplateExpression(node.parent)) template(node);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return { text: runtime + apply(text, edits), mutants };
}

/** The runtime is added to the first line, so the source's line numbers do not change. */
export const runtime = `${[
  'const _M = (globalThis.__mgwMutants ??= (() => {',
  "const [, active = '-1', reached = ''] = /mgw-mutant=(-?\\d+)=([^:]*)/.exec(process.env.PATH ?? '') ?? [];",
  // getBuiltinModule returns the original functions, even if a test has replaced the imported ones.
  "const { closeSync, openSync, writeSync } = process.getBuiltinModule('node:fs');",
  "const append = (path, text) => { const file = openSync(path, 'a'); writeSync(file, text); closeSync(file); };",
  'const is = (n) => (is.reach(n), n === is.active);',
  'is.seen = new Set(); is.active = Number(active); is.log = reached;',
  "is.reach = (n) => { if (is.log === '' || is.seen.has(n)) return; is.seen.add(n); append(is.log, n + ' '); };",
  'is.either = (yes, no, value) => is(yes) ? true : is(no) ? false : value;',
  "is.operate = (n, one, other, a, b) => { switch (is(n) ? other : one) { case '<': return a < b;",
  "case '<=': return a <= b; case '>': return a > b; case '>=': return a >= b; case '+': return a + b; default: return a - b; } };",
  'return is; })()); ',
].join(' ')}`;

function isCondition(node) {
  const { parent } = node;
  if (parent === undefined) return false;
  if (ts.isIfStatement(parent) || ts.isWhileStatement(parent)) return parent.expression === node;
  return (ts.isConditionalExpression(parent) || ts.isForStatement(parent)) && parent.condition === node;
}

function isTruth(node) {
  if (ts.isPrefixUnaryExpression(node) || node.kind === K.TrueKeyword || node.kind === K.FalseKeyword)
    return true;
  return ts.isBinaryExpression(node) && equalities.has(node.operatorToken.getText());
}

function isText(node) {
  return ts.isStringLiteralLike(node) || ts.isTemplateExpression(node);
}

// Whether a node is a message for users. Tests should depend neither on a message's wording nor on the conditions that
// select it.
function isMessage(node) {
  if (ts.isParenthesizedExpression(node)) return isMessage(node.expression);
  if (ts.isConditionalExpression(node)) {
    const branches = [node.whenTrue, node.whenFalse];
    return branches.some(isMessage) && branches.every((each) => isMessage(each) || each.text === '');
  }
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === K.PlusToken)
    return isMessage(node.left) || isMessage(node.right);
  if (!isText(node)) return false;
  const words = [node.head ?? node, ...(node.templateSpans ?? []).map(({ literal }) => literal)].map(
    ({ text }) => text,
  );
  return /[a-z]{2} [a-z]|[a-z]{3}[.;:,]? $/.test(words.join('_')) && !/\b[A-Z]{3,} /.test(words.join('_'));
}

// Whether a node prints a line for users, such as `note(text)`.
function isNote(node) {
  return (
    ts.isExpressionStatement(node) &&
    ts.isCallExpression(node.expression) &&
    /^(\w+\.)?(note|warn)$/.test(node.expression.expression.getText())
  );
}

function isTemplate(node) {
  return [K.NoSubstitutionTemplateLiteral, K.TemplateHead, K.TemplateMiddle, K.TemplateTail].includes(
    node.kind,
  );
}

function isSignature(node) {
  return node.body.kind === K.ArrowFunction;
}

function isRemovable(node) {
  if (ts.isAwaitExpression(node)) return isRemovable(node.expression);
  if (ts.isVoidExpression(node)) return isRemovable(node.expression);
  if (ts.isCallExpression(node)) return node.expression.kind !== K.SuperKeyword;
  return ts.isBinaryExpression(node) && /^(=|\?\?=|\+=|-=|\|\|=)$/.test(node.operatorToken.getText());
}

// At the same position, ends of mutants precede beginnings. Inner ends precede outer ends, and outer beginnings precede
// inner ones.
function apply(text, edits) {
  const sorted = edits
    .map((edit, index) => ({ ...edit, index }))
    .sort((a, b) => a.at - b.at || rank(a) - rank(b) || tie(a, b));
  let result = '';
  let from = 0;
  for (const { at, end = at, text: added } of sorted) {
    result += text.slice(from, at) + added;
    from = end;
  }
  return result + text.slice(from);
}

function rank({ order }) {
  return order < 0 ? 0 : 1;
}

function tie(a, b) {
  // If two mutants end here, the inner one starts later. If two begin here, the outer one ends later.
  if (a.order !== b.order) return a.order < 0 ? a.order - b.order : b.order - a.order;
  // Two mutants of one node open in order, and close in reverse order.
  return a.order < 0 ? b.index - a.index : a.index - b.index;
}

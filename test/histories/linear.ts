/** A process's operation: its call and its response, each with its time in ms on a shared clock. */
export interface Operation<Input, Output> {
  startedAt: number;
  endedAt: number;
  input: Input;
  output: Output;
}

/**
 * Whether some order of the operations explains all responses, if each operation takes effect at one moment between its
 * call and its response. Uses Wing and Gong's search with Lowe's cache of failed states.
 * @param apply returns the state after an operation, or undefined if the operation cannot have its
 *   response in the given state
 */
export function isLinearizable<State, Input, Output>(
  history: readonly Operation<Input, Output>[],
  initial: State,
  apply: (state: State, input: Input, output: Output) => State | undefined,
): boolean {
  const visited = new Set<string>();
  const search = (left: readonly Operation<Input, Output>[], state: State): boolean => {
    if (left.length === 0) return true;
    const here = JSON.stringify([state, left.map((operation) => history.indexOf(operation))]);
    if (visited.has(here)) return false;
    visited.add(here);
    // An operation cannot take effect before another operation whose response arrived before its call.
    const firstAnswer = Math.min(...left.map(({ endedAt }) => endedAt));
    return left.some((operation) => {
      if (operation.startedAt > firstAnswer) return false;
      const next = apply(state, operation.input, operation.output);
      return (
        next !== undefined &&
        search(
          left.filter((other) => other !== operation),
          next,
        )
      );
    });
  };
  return search(history, initial);
}

/** A call to a budget: reserves an amount, or reads the reserved sum. */
export type BudgetInput = { reserve: number } | 'read';

/** Returns a model of a budget that grants an amount if and only if the amount fits the limit. */
export function budgetOf(limit: number) {
  return (taken: number, input: BudgetInput, output: boolean | number): number | undefined => {
    if (input === 'read') return output === taken ? taken : undefined;
    const fits = taken + input.reserve <= limit;
    return output === fits ? taken + (fits ? input.reserve : 0) : undefined;
  };
}

/**
 * A model of a key. The state is the handle of the key's job, or '' if the key has none. A removal returns the handle
 * of the removed job, or '' if it removed none.
 */
export function keyed(handle: string, input: 'submit' | 'remove', output: string): string | undefined {
  if (input === 'remove')
    return output === '' || output === handle ? (output === '' ? handle : '') : undefined;
  return handle === '' || handle === output ? output : undefined;
}

/** Makes one question of all that are asked in one turn of the event loop; what has no answer is undefined. */
export function askedTogether<K, V>(
  ask: (keys: K[]) => Promise<Map<K, V>>,
): (key: K) => Promise<V | undefined> {
  let waiting: K[] = [];
  let answers: Promise<Map<K, V>> | undefined;
  return async (key) => {
    waiting.push(key);
    answers ??= new Promise((resolve) => process.nextTick(resolve)).then(() => {
      const keys = waiting;
      waiting = [];
      answers = undefined;
      return ask(keys);
    });
    return (await answers).get(key);
  };
}

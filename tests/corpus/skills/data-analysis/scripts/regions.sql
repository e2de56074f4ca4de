.mode csv
.headers on
SELECT region, count(*) AS sales, round(sum(amount), 1) AS amount FROM sales GROUP BY region ORDER BY amount DESC, region;
